// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
)

func TestWithoutLeftovers(t *testing.T) {
	for _, tt := range []struct {
		name, have, want string
		removed          []string
	}{
		{"1.26", `KUBELET_KUBEADM_ARGS="--container-runtime=remote --container-runtime-endpoint=unix:///run/x.sock --pod-infra-container-image=registry.k8s.io/pause:3.9"` + "\n",
			`KUBELET_KUBEADM_ARGS=""` + "\n",
			[]string{"--container-runtime=remote", "--container-runtime-endpoint=unix:///run/x.sock", "--pod-infra-container-image=registry.k8s.io/pause:3.9"}},
		{"others stay", "# mine\nOTHER=\"--pod-infra-container-image=x\"\n" + `KUBELET_KUBEADM_ARGS="--v=3 --pod-infra-container-image=x/y:1 --node-labels=\"a b\""` + "\n",
			"# mine\nOTHER=\"--pod-infra-container-image=x\"\n" + `KUBELET_KUBEADM_ARGS="--v=3 --node-labels=\"a b\""` + "\n",
			[]string{"--pod-infra-container-image=x/y:1"}},
		{"nothing", `KUBELET_KUBEADM_ARGS="--v=3"`, `KUBELET_KUBEADM_ARGS="--v=3"`, nil},
	} {
		got, removed := WithoutLeftovers([]byte(tt.have))
		if string(got) != tt.want || !cmp.Equal(removed, tt.removed) {
			t.Errorf("%s: %s\nremoved %q", tt.name, got, removed)
		}
	}
}

// TestWithEndpointOf: a removed flag has overridden the file, so its value goes there. Only then does the file change.
func TestWithEndpointOf(t *testing.T) {
	const instance = "# mine\ncontainerRuntimeEndpoint: unix:///a\nmaxPods: 17\n"
	const a, b, image = "--container-runtime-endpoint=unix:///a", "--container-runtime-endpoint=unix:///b", "--pod-infra-container-image=x"
	for _, tt := range []struct {
		removed        []string
		instance, want string
	}{
		{nil, instance, instance},
		{[]string{a, image}, instance, instance},
		{[]string{b, a}, instance, instance},
		{[]string{a, b, image}, instance, "containerRuntimeEndpoint: unix:///b\nmaxPods: 17\n"},
		{[]string{b}, "", "containerRuntimeEndpoint: unix:///b\n"},
	} {
		if got, err := WithEndpointOf(tt.removed, []byte(tt.instance)); err != nil || string(got) != tt.want {
			t.Errorf("%q over %q: %q, %v", tt.removed, tt.instance, got, err)
		}
	}
}

// TestWithoutRefused: a kubelet keeps the flags it accepts, and loses those it wouldn't start with.
func TestWithoutRefused(t *testing.T) {
	const have = `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/x.sock --pod-infra-container-image=x/pause:3.9 --v=2"` + "\n"
	const cleaned = `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/x.sock --v=2"` + "\n"
	for kubelet, want := range map[string]string{"1.34.9": have, "1.35.0-rc.1": cleaned, "1.35.0": cleaned, "1.37.2": cleaned, "": cleaned} {
		var installed *version.Version
		if kubelet != "" {
			installed = version.MustParseSemantic(kubelet)
		}
		if got, _ := WithoutRefused([]byte(have), installed); string(got) != want {
			t.Errorf("kubelet %q: %s", kubelet, got)
		}
	}
}
