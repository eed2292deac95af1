// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
