// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestControlPlanes: a worker's kubelet can write its Node's addresses and mirror Pods of itself, but not the label.
func TestControlPlanes(t *testing.T) {
	addresses := func(texts ...string) (list []corev1.NodeAddress) {
		for _, text := range texts {
			list = append(list, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text})
		}
		return list
	}
	plane, worker := *NewNode("cp-1"), *NewNode("w-1")
	plane.Labels = map[string]string{LabelControlPlane: ""}
	plane.Status.Addresses, worker.Status.Addresses = addresses("192.0.2.11", "fd00::11", "cp-1.example.com"), addresses("192.0.2.11", "192.0.2.21")
	planes := ControlPlanesOf([]corev1.Node{plane, worker})
	pod := func(node string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	}
	own, others := planes.Pods([]corev1.Pod{pod("w-1"), pod("cp-1"), pod(""), pod("gone")})
	if len(own) != 1 || own[0].Spec.NodeName != "cp-1" || len(others) != 3 {
		t.Errorf("%d on control planes, %d elsewhere", len(own), len(others))
	}
	for name, test := range map[string]struct {
		node, host string
		want       bool
	}{
		"its address":            {"cp-1", "192.0.2.11", true},
		"mapped into IPv6":       {"cp-1", "::ffff:192.0.2.11", true},
		"another form":           {"cp-1", "fd00:0:0::11", true},
		"its name":               {"cp-1", "cp-1.example.com", true},
		"another address":        {"cp-1", "192.0.2.21", false},
		"nothing":                {"cp-1", "", false},
		"what a worker says":     {"w-1", "192.0.2.11", false},
		"a node that is unknown": {"gone", "192.0.2.11", false},
	} {
		if got := planes.Has(test.node, test.host); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
