// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// withSidecar has a sidecar from today's patches, first in the API server's static Pod.
func withSidecar(t *testing.T) *phasetest.Stage {
	t.Helper()
	s := phasetest.PlaneToUpgrade(t)
	s.Config.PatchesDir = "/patches"
	s.Put(t, "/patches/kube-apiserver.yaml", "spec: {containers: [{name: side, image: 'side:1', command: [side]}]}\n")
	patches, err := s.Env.Patches()
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
