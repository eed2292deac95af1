// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import "testing"

// TestSidecarFirst: a component's version and flags are its own, wherever its container is.
func TestSidecarFirst(t *testing.T) {
	const containers = `{name: side, image: "side:v9", command: [side, --v=9]}, {name: etcd, image: "etcd:3.6.12-0", command: [etcd], args: [--v=2]}`
	for name, want := range map[string][2]string{
		"{name: etcd}":  {"etcd:3.6.12-0", "2"},
		"{name: other}": {"side:v9", "9"},
		"{name: etcd-cp-1, labels: {component: etcd}}": {"etcd:3.6.12-0", "2"},
	} {
		manifest := []byte("metadata: " + name + "\nspec: {containers: [" + containers + "]}")
		pod, err := DecodePod(manifest)
		if err != nil || len(pod.Spec.Containers) != 2 {
			t.Fatalf("%+v, %v", pod, err)
		}
		if got := [2]string{ImageOf(manifest), FlagOf(pod, "v")}; got != want {
			t.Errorf("%s: %v", name, got)
		}
		pod.Spec.Containers[0], pod.Spec.Containers[1] = pod.Spec.Containers[1], pod.Spec.Containers[0]
		if got := FlagOf(pod, "v"); name != "{name: other}" && got != want[1] {
			t.Errorf("%s, as the API has it: %s", name, got)
		}
	}
}

// TestSameWithSidecar: the place of a component's container among sidecars means nothing to the kubelet; the sidecars do.
func TestSameWithSidecar(t *testing.T) {
	pod := func(containers string) []byte {
		return []byte("metadata: {name: etcd}\nspec: {containers: [" + containers + "]}")
	}
	const etcd, side = "{name: etcd, image: e}", "{name: side, image: s}"
	if !SameStaticPod(pod(etcd+", "+side), pod(side+", "+etcd)) {
		t.Error("a sidecar that comes first counts")
	}
	if SameStaticPod(pod(etcd+", "+side), pod(etcd)) {
		t.Error("a sidecar doesn't count")
	}
}
