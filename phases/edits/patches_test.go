// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestCommandPatches: the order of a flag's values is kept, the order of flags doesn't matter.
func TestCommandPatches(t *testing.T) {
	for _, c := range []struct{ have, before, next, want string }{
		{"x -b=1 -a=1", "x -a=1 -b=1", "x -a=1 -b=1", "x -a=1 -b=1"},
		{"x -a=2 -a=1 -b", "x -a=1 -b", "x -a=1 -b", "x -a=2 -a=1 -b"},
		{"x -a=1 -a=2 -b", "x -a=1 -b", "x -a=1 -b", "x -a=1 -b -a=2"},
		{"x -a=3 -a=2 -a=1", "x -a=1", "x -n -a=1", "x -n -a=3 -a=2 -a=1"},
		{"x -a=2 -a=1", "x -a=1 -a=2", "x -a=1 -n -a=2", "x -a=2 -n -a=1"},
		{"x -a=1 -a=2", "x -a=1 -a=2", "x -a=2 -a=1", "x -a=2 -a=1"},
		{"x -a=3 -a=4 -b", "x -a=1 -a=2 -b", "x -a=1 -a=2 -b", "x -a=3 -a=4 -b"},
		{"x -a=2 -a=1", "x -c -a=1 -d", "x -c -a=1 -d", "x -a=2 -a=1"},
		{"x -a=1 -c v -d w", "x -a=1", "x -a=1 -n", "x -a=1 -n -c v -d w"},
	} {
		next := strings.Fields(c.next)
		operations := commandPatch(0, strings.Fields(c.have), strings.Fields(c.before), next)
		file, err := yaml.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		if len(operations) == 0 {
			file = nil
		}
		if got := patched(t, next, file); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s instead of %s, with %s: %q, want %s", c.have, c.before, c.next, got, c.want)
		}
	}
}

// patched returns a command line after a JSON patch; nil is none.
func patched(t *testing.T, words []string, file []byte) []string {
	t.Helper()
	var files []config.PatchFile
	if file != nil {
		files = []config.PatchFile{{Name: manifests.SchedulerName + "+json.yaml", Data: file}}
	}
	set, err := config.ParsePatches(files)
	if err != nil {
		t.Fatal(err)
	}
	data, err := set.Apply(manifests.SchedulerName, encoded(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b", Command: words}}}}), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Spec.Containers[0].Command
}

// TestEditPatches: with the patches printed by the plan, the upgrade keeps each edit, and the check for edits passes.
func TestEditPatches(t *testing.T) {
	const apiServer = manifests.APIServerName
	for name, row := range map[string]struct {
		edit func(*testing.T, *phasetest.Stage)
		want []string                  // names of the patches
		kept func(pod corev1.Pod) bool // by the upgrade
	}{
		"nothing": {func(*testing.T, *phasetest.Stage) {}, nil, func(corev1.Pod) bool { return true }},
		"a new flag": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --profiling=false\n")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool { return slices.Contains(p.Spec.Containers[0].Command, "--profiling=false") }},
		"a changed flag": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "--enable-admission-plugins=NodeRestriction", "--enable-admission-plugins=NodeRestriction,AlwaysPullImages")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool {
			c := p.Spec.Containers[0].Command
			return slices.Contains(c, "--enable-admission-plugins=NodeRestriction,AlwaysPullImages") && !slices.Contains(c, "--enable-admission-plugins=NodeRestriction")
		}},
		"flags that went": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "    - --allow-privileged=true\n", "")
			s.EditPod(t, apiServer, "    - --secure-port=6443\n", "")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool {
			c := p.Spec.Containers[0].Command
			return !slices.Contains(c, "--allow-privileged=true") && !slices.Contains(c, "--secure-port=6443") && slices.Contains(c, "--enable-bootstrap-token-auth=true")
		}},
		"resources and a label": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, "kube-scheduler", "cpu: 100m", "cpu: 300m")
			s.EditPod(t, "kube-scheduler", "    tier: control-plane\n", "    tier: control-plane\n    team: mine\n")
		}, []string{"kube-scheduler0+strategic.yaml"}, func(p corev1.Pod) bool {
			return p.Spec.Containers[0].Resources.Requests.Cpu().String() == "300m" && p.Labels["team"] == "mine"
		}},
		"a volume": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: /audit, name: audit}\n")
			s.EditPod(t, apiServer, "  volumes:\n", "  volumes:\n  - {name: audit, hostPath: {path: /var/log/audit}}\n")
		}, []string{"kube-apiserver0+strategic.yaml"}, func(p corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "audit" }) && len(p.Spec.Volumes) > 1
		}},
		"a new issuer before the old": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "    - --service-account-issuer=", "    - --service-account-issuer=https://new\n    - --service-account-issuer=")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool {
			c := p.Spec.Containers[0].Command
			i := slices.Index(c, "--service-account-issuer=https://new")
			return i >= 0 && c[i+1] == "--service-account-issuer=https://kubernetes.default.svc.cluster.local"
		}},
		"another registry": {func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, apiServer, "image: registry.k8s.io/kube-apiserver:", "image: example.com/kube-apiserver:")
		}, []string{"kube-apiserver0+strategic.yaml"}, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image == "example.com/kube-apiserver:v1.37.2" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			row.edit(t, s)
			patches, err := PatchesOf(t.Context(), s.Env)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range patches.Kept {
				names = append(names, f.Name)
				s.Put(t, "/patches/"+f.Name, string(f.Data))
			}
			if !slices.Equal(names, row.want) {
				t.Fatalf("patches %q, want %q", names, row.want)
			}
			if names == nil {
				return
			}
			if found := StaticPodFindings(t.Context(), s.Env); len(found) != 1 {
				t.Errorf("without the patches: %v", found)
			}
			s.Config.PatchesDir = "/patches"
			if found := StaticPodFindings(t.Context(), s.Env); len(found) != 0 {
				t.Errorf("with the patches: %v", found)
			}
			list, err := node.Replacements(s.Env)
			if err != nil {
				t.Fatal(err)
			}
			component, _, _ := strings.Cut(names[0], "0+")
			for _, m := range list {
				var pod corev1.Pod
				if err := yaml.Unmarshal(m.Wanted, &pod); err != nil {
					t.Fatal(err)
				}
				if pod.Name == component && (!row.kept(pod) || !strings.HasSuffix(pod.Spec.Containers[0].Image, ":v1.37.2")) {
					t.Errorf("lost in:\n%s", m.Wanted)
				}
			}
		})
	}
}

// TestDroppedImages: an operator's own tag or digest doesn't vanish without a word.
func TestDroppedImages(t *testing.T) {
	const server, controllers, digest = manifests.APIServerName, manifests.ControllerManagerName, ":v1.36.4@sha256:0123"
	for name, row := range map[string]struct {
		component, tag string
		patch          string
		dropped        bool
	}{
		"the usual tag":                   {controllers, ":v1.36.4", "", false},
		"another version":                 {controllers, ":v1.36.3", "", true},
		"a digest":                        {controllers, digest, "", true},
		"the API server's digest":         {server, digest, "", true},
		"the API server's own build":      {server, ":v1.36.4_own.1", "", true},
		"the API server in between":       {server, ":v1.36.5", "", false},
		"the API server already upgraded": {server, ":v1.37.2", "", false},
		"etcd's tag":                      {manifests.EtcdName, ":3.6.12-0", "", false},
		"a patch decides":                 {controllers, digest, "registry.k8s.io/kube-controller-manager:v1.37.2@sha256:4567", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			_, usual := manifests.SplitImage(s.Config.With(func(n *config.Node) { n.Cluster.KubernetesVersion = "v1.36.4" }).Image(row.component))
			s.EditPod(t, row.component, ":"+usual+"\n", row.tag+"\n")
			if row.patch != "" {
				s.Put(t, "/patches/"+row.component+".yaml", "spec: {containers: [{name: "+row.component+", image: '"+row.patch+"'}]}\n")
				s.Config.PatchesDir = "/patches"
			}
			var want []phasetest.FoundAs
			if row.dropped {
				want = []phasetest.FoundAs{{Name: "warning StaticPodEdits", Facts: []string{row.component}, List: "registry.k8s.io/" + row.component + row.tag}}
			}
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), want...)
		})
	}
}

// TestDroppedBuilds: builds of the operator's own don't vanish without a word either if all components have the same tag.
func TestDroppedBuilds(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	var want []phasetest.FoundAs
	for _, component := range []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		s.EditPod(t, component, ":v1.36.4\n", ":v1.36.4_own.1\n")
		want = append(want, phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{component}, List: "registry.k8s.io/" + component + ":v1.36.4_own.1"})
	}
	phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), want...)
	s.Config.Upgrade.From = "v1.36.4+own.1"
	phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env))
}

// TestErrorsNamePatches: an error of a patch says where it is, whether it can't be read or can't be applied.
func TestErrorsNamePatches(t *testing.T) {
	for name, text := range map[string]string{"kube-scheduler+jsn.yaml": "[]\n", "kube-scheduler+json.yaml": "- {op: remove, path: /spec/nothing}\n"} {
		s := phasetest.PlaneToUpgrade(t)
		s.Put(t, "/patches/"+name, text)
		s.Config.PatchesDir = "/patches"
		_, err := node.StaticPodYAML(s.Env, manifests.SchedulerName, manifests.HostView{}, nil)
		fact.Error(t, err, "/patches", name)
	}
}
