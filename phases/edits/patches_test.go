// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

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
