// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
)

// deployment has a Pod template with this spec.
func deployment(t *testing.T, template string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	text := "metadata: {name: a, namespace: b}\nspec: {replicas: 2, template: {spec: " + template + "}}"
	if err := yaml.UnmarshalStrict([]byte(text), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMerge has the Pod template's spec in each version, and the result.
func TestMerge(t *testing.T) {
	const old = "{containers: [{name: a, image: a:1, args: [x], resources: {limits: {memory: 512Mi}}}], nodeSelector: {os: linux}}"
	for name, c := range map[string]struct{ live, wanted, plain, want string }{
		"nothing changes": {live: old, wanted: old, want: old},
		"a new image": {
			live: old, wanted: "{containers: [{name: a, image: a:2, args: [x], resources: {limits: {memory: 512Mi}}}], nodeSelector: {os: linux}}",
			want: "{containers: [{name: a, image: a:2, args: [x], resources: {limits: {memory: 512Mi}}}], nodeSelector: {os: linux}}",
		},
		"edits stay, defaults and additions too": {
			live: "{restartPolicy: Always, containers: [{name: side, image: s}, {name: a, image: a:1, args: [x, y], resources: {limits: {memory: 0.5Gi, cpu: 1}}, " +
				"terminationMessagePath: /dev/x}], nodeSelector: {os: linux, disk: ssd}, tolerations: [{key: k}]}",
			wanted: "{containers: [{name: a, image: a:2, args: [z], resources: {limits: {memory: 600Mi}}}], nodeSelector: {os: linux, new: x}, priority: 7}",
			want: "{restartPolicy: Always, containers: [{name: side, image: s}, {name: a, image: a:2, args: [x, y], resources: {limits: {memory: 600Mi, cpu: 1}}, " +
				"terminationMessagePath: /dev/x}], nodeSelector: {os: linux, disk: ssd, new: x}, tolerations: [{key: k}], priority: 7}",
		},
		"what an operator removed stays removed": {
			live:   "{containers: [{name: a, image: a:1}]}",
			wanted: "{containers: [{name: a, image: a:2, args: [z], resources: {limits: {memory: 600Mi}}}], nodeSelector: {os: linux}}",
			want:   "{containers: [{name: a, image: a:2}]}",
		},
		"what a release no longer has goes": {
			live:   "{containers: [{name: a, image: a:1, args: [x], resources: {limits: {memory: 512Mi}}}], nodeSelector: {os: linux, disk: ssd}}",
			wanted: "{containers: [{name: a, image: a:2}], nodeSelector: {}}",
			want:   "{containers: [{name: a, image: a:2, resources: {}}], nodeSelector: {disk: ssd}}",
		},
		"an edit of what a release no longer has stays": {
			live:   "{containers: [{name: a, image: a:1, args: [y]}]}",
			wanted: "{containers: [{name: a, image: a:1}]}",
			want:   "{containers: [{name: a, image: a:1, args: [y]}]}",
		},
		"a patch replaces an edit": {
			live:   "{containers: [{name: a, image: own:1, args: [y], resources: {limits: {memory: 1Gi}}}]}",
			wanted: "{containers: [{name: b, image: b}, {name: a, image: a:3, args: [x], resources: {limits: {memory: 2Gi}}}], nodeSelector: {os: linux, disk: hdd}}",
			plain:  old,
			want:   "{containers: [{name: a, image: a:3, args: [y], resources: {limits: {memory: 2Gi}}}, {name: b, image: b}], nodeSelector: {os: linux, disk: hdd}}",
		},
		"a patch removes": {
			live: old, wanted: "{containers: [{name: a, image: a:1, args: [x]}]}", plain: old,
			want: "{containers: [{name: a, image: a:1, args: [x], resources: {}}]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.plain == "" {
				c.plain = c.wanted
			}
			live := deployment(t, c.live)
			live.ResourceVersion, live.Generation, live.Status.Replicas = "7", 3, 1
			v := cluster.Versions{Old: deployment(t, old), New: deployment(t, c.wanted), Plain: deployment(t, c.plain)}
			*live.Spec.Replicas = 5
			changed, err := cluster.Merge(live, v)
			if err != nil || changed != (c.live != c.want) {
				t.Fatalf("changed: %v, error %v", changed, err)
			}
			want := deployment(t, c.want)
			if diff := cmp.Diff(want.Spec.Template, live.Spec.Template); diff != "" {
				t.Errorf("merged, -want +got:\n%s", diff)
			}
			if *live.Spec.Replicas != 5 || live.ResourceVersion != "7" {
				t.Errorf("replicas %d, version %q", *live.Spec.Replicas, live.ResourceVersion)
			}
			if changed, err = cluster.Merge(live, v); changed || err != nil {
				t.Errorf("the second time: changed: %v, error %v", changed, err)
			}
		})
	}
}

// TestMergeRemoves: removed elements and probes leave nothing of the API's defaults behind, which it would refuse.
func TestMergeRemoves(t *testing.T) {
	const (
		old    = "{containers: [{name: a, image: a:1, livenessProbe: {httpGet: {path: /x, port: 80}}}], volumes: [{name: v, hostPath: {path: /v}}, {name: w, hostPath: {path: /w}}]}"
		wanted = "{containers: [{name: a, image: a:1}], volumes: [{name: w, hostPath: {path: /w}}]}"
		probe  = `livenessProbe: {httpGet: {path: /x, port: 80, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}`
	)
	for name, c := range map[string]struct{ live, plain, want string }{
		"by a patch": {
			live:  "{containers: [{name: a, image: a:1, " + probe + `}], volumes: [{name: v, hostPath: {path: /v, type: ""}}, {name: w, hostPath: {path: /w, type: ""}}]}`,
			plain: old,
			want:  `{containers: [{name: a, image: a:1}], volumes: [{name: w, hostPath: {path: /w, type: ""}}]}`,
		},
		"by a release": {
			live: "{containers: [{name: a, image: a:1, " + probe + `}], volumes: [{name: v, hostPath: {path: /v, type: ""}}, {name: w, hostPath: {path: /w, type: ""}}]}`,
			want: `{containers: [{name: a, image: a:1}], volumes: [{name: w, hostPath: {path: /w, type: ""}}]}`,
		},
		"edited, by a patch": {
			live:  `{containers: [{name: a, image: a:1}], volumes: [{name: v, hostPath: {path: /own, type: ""}}, {name: w, hostPath: {path: /w, type: ""}}]}`,
			plain: old,
			want:  `{containers: [{name: a, image: a:1}], volumes: [{name: w, hostPath: {path: /w, type: ""}}]}`,
		},
		"edited, by a release": {
			live: `{containers: [{name: a, image: a:1}], volumes: [{name: v, hostPath: {path: /own, type: ""}}, {name: w, hostPath: {path: /w, type: ""}}]}`,
			want: `{containers: [{name: a, image: a:1}], volumes: [{name: v, hostPath: {path: /own, type: ""}}, {name: w, hostPath: {path: /w, type: ""}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.plain == "" {
				c.plain = wanted
			}
			live := deployment(t, c.live)
			v := cluster.Versions{Old: deployment(t, old), New: deployment(t, wanted), Plain: deployment(t, c.plain)}
			if _, err := cluster.Merge(live, v); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(deployment(t, c.want), live); diff != "" {
				t.Errorf("merged, -want +got:\n%s", diff)
			}
		})
	}
}

// TestMergeKeepsMounted: a volume that a release or a patch takes away stays while an edited mount or an added container names it.
func TestMergeKeepsMounted(t *testing.T) {
	const (
		volumes = "volumes: [{name: v, hostPath: {path: /v}}, {name: w, hostPath: {path: /w}}]"
		w       = "{name: w, mountPath: /w}"
		old     = "{containers: [{name: a, image: a:1, volumeMounts: [{name: v, mountPath: /v}, " + w + "]}], " + volumes + "}"
		less    = "{containers: [{name: a, image: a:1, volumeMounts: [" + w + "]}], volumes: [{name: w, hostPath: {path: /w}}]}"
		none    = "{containers: [{name: a, image: a:1}]}"
		edited  = "{containers: [{name: a, image: a:1, volumeMounts: [{name: v, mountPath: /own}, " + w + "]}], " + volumes + "}"
		added   = "{containers: [{name: a, image: a:1, volumeMounts: [" + w + "]}, {name: b, image: b, volumeMounts: [{name: v, mountPath: /v}]}], " + volumes + "}"
		first   = "{initContainers: [{name: b, image: b, volumeMounts: [{name: v, mountPath: /v}]}], containers: [{name: a, image: a:1}], " + volumes + "}"
	)
	for name, c := range map[string]struct {
		live, wanted, plain string
		want                []string
	}{
		"nobody mounts it":         {old, less, less, []string{"w"}},
		"an edited mount":          {edited, less, less, []string{"v", "w"}},
		"an added container":       {added, less, less, []string{"v", "w"}},
		"of a patch's volume":      {added, less, old, []string{"v", "w"}},
		"and no volumes are left":  {first, none, none, []string{"v"}},
		"and nobody wants another": {old, none, none, nil},
	} {
		t.Run(name, func(t *testing.T) {
			live := deployment(t, c.live)
			v := cluster.Versions{Old: deployment(t, old), New: deployment(t, c.wanted), Plain: deployment(t, c.plain)}
			for range 2 {
				if _, err := cluster.Merge(live, v); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, volume := range live.Spec.Template.Spec.Volumes {
					got = append(got, volume.Name)
				}
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("volumes %q, want %q", got, c.want)
				}
			}
		})
	}
}

// TestMergeRules: a rule with an extra field is a different rule, made by an operator.
func TestMergeRules(t *testing.T) {
	role := func(names ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"pods"}, ResourceNames: names}}}
	}
	wanted := role()
	wanted.Rules[0].Verbs = []string{"get", "list"}
	v := cluster.Versions{Old: role(), New: wanted, Plain: wanted}
	if changed, err := cluster.Merge(role("a"), v); changed || err != nil {
		t.Errorf("an edited rule was replaced: %v, %v", changed, err)
	}
	live := role()
	if changed, err := cluster.Merge(live, v); !changed || err != nil || !cmp.Equal(live, wanted) {
		t.Errorf("got %v, %v", live, err)
	}
}

func TestMergeData(t *testing.T) {
	cm := func(data map[string]string) *corev1.ConfigMap { return &corev1.ConfigMap{Data: data} }
	live := cm(map[string]string{"a": "1", "b": "edited", "own": "x"})
	wanted := cm(map[string]string{"a": "2", "b": "2", "c": "2"})
	v := cluster.Versions{Old: cm(map[string]string{"a": "1", "b": "1"}), New: wanted, Plain: wanted}
	if changed, err := cluster.Merge(live, v); !changed || err != nil {
		t.Fatalf("changed: %v, error %v", changed, err)
	}
	if diff := cmp.Diff(map[string]string{"a": "2", "b": "edited", "c": "2", "own": "x"}, live.Data); diff != "" {
		t.Error(diff)
	}
}
