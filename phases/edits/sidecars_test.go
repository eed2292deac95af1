// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// withSidecar has a sidecar from today's patches, first in the API server's static Pod.
func withSidecar(t *testing.T) *phasetest.Stage {
	t.Helper()
	s := phasetest.PlaneToUpgrade(t)
	s.Config.PatchesDir = "/patches"
	s.Put(t, "/patches/kube-apiserver.yaml", "spec: {containers: [{name: side, image: 'side:1', command: [side]}]}\n")
	patches, err := s.Patches()
	phasetest.Fatal(t, err)
	data, err := patches.Apply(manifests.APIServerName, []byte(s.Get(t, phasetest.APIServerManifest)), &corev1.Pod{})
	phasetest.Fatal(t, err)
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil || pod.Spec.Containers[0].Name != "side" {
		t.Fatalf("%v in\n%s", err, data)
	}
	s.Put(t, phasetest.APIServerManifest, string(data))
	return s
}

// TestSidecarIsNoEdit: a sidecar that comes first is no edit beside a doubtful one.
func TestSidecarIsNoEdit(t *testing.T) {
	s := withSidecar(t)
	s.EditPod(t, manifests.APIServerName, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4\n")
	manifestsWrittenAt(t, s, manifestsWritten)
	configured(t, s, metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", configurationFields, time.Hour)}})
	phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env),
		phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{manifests.APIServerName}, List: "- --v=4"})
}

// TestPatchesBesideSidecars: the printed patches change the API server's flags, not a sidecar's, whether today's patches add the sidecar,
// or another printed patch does.
func TestPatchesBesideSidecars(t *testing.T) {
	changed := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", configurationFields, time.Hour)}}
	for name, row := range map[string]struct {
		stage          func(*testing.T) *phasetest.Stage
		stored         metav1.ObjectMeta
		kept, doubtful []string
	}{
		"from a patch": {stage: withSidecar, kept: []string{"kube-apiserverzz-edits+json.yaml"}},
		"in doubt":     {stage: withSidecar, stored: changed, doubtful: []string{"kube-apiserverzz-edits-doubtful+json.yaml"}},
		"by hand": {stage: func(t *testing.T) *phasetest.Stage {
			s := phasetest.PlaneToUpgrade(t)
			s.EditPod(t, manifests.APIServerName, "  containers:\n", "  containers:\n  - {name: side, image: 'side:1', command: [side]}\n")
			return s
		}, stored: changed, kept: []string{"kube-apiserver0-sidecars+strategic.yaml"}, doubtful: []string{"kube-apiserver0-doubtful+json.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := row.stage(t)
			s.EditPod(t, manifests.APIServerName, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4\n")
			manifestsWrittenAt(t, s, manifestsWritten)
			configured(t, s, row.stored)
			kept, doubtful := editNames(t, s)
			if !slices.Equal(kept, row.kept) || !slices.Equal(doubtful, row.doubtful) {
				t.Fatalf("patches %q, %q", kept, doubtful)
			}
			patches, err := PatchesOf(t.Context(), s.Env)
			phasetest.Fatal(t, err)
			for _, f := range slices.Concat(patches.Kept, patches.Doubtful) {
				s.Put(t, "/patches/"+f.Name, string(f.Data))
			}
			s.Config.PatchesDir = "/patches"
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env))
			list, err := node.Replacements(s.Env)
			phasetest.Fatal(t, err)
			pod, err := manifests.DecodePod(list[1].Wanted)
			phasetest.Fatal(t, err)
			server, side := pod.Spec.Containers[0], pod.Spec.Containers[1]
			if server.Name != manifests.APIServerName || !slices.Contains(server.Command, "--v=4") || !slices.Equal(side.Command, []string{"side"}) {
				t.Errorf("the upgrade writes\n%s", list[1].Wanted)
			}
		})
	}
}
