// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// LabelControlPlane marks the Nodes of control planes. Only who may change any Node can set it: the admission plugin
// NodeRestriction refuses it to kubelets.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// ControlPlanes are the Nodes of control planes by name. Only what their kubelets say of control planes counts: that of a worker
// can make a mirror Pod of itself in any namespace, with the labels, the annotations and the image of an API server or an etcd.
type ControlPlanes map[string]*corev1.Node

// ControlPlanesOf picks them by their label.
func ControlPlanesOf(nodes []corev1.Node) ControlPlanes {
	planes := ControlPlanes{}
	for i := range nodes {
		if _, marked := nodes[i].Labels[LabelControlPlane]; marked {
			planes[nodes[i].Name] = &nodes[i]
		}
	}
	return planes
}

// Count adds a Node that lacks the label, as after somebody has taken it off: that of this host, whose files say that it is a
// control plane. For no other Node can this be known.
func (c ControlPlanes) Count(nodes []corev1.Node, own string) {
	for i := range nodes {
		if nodes[i].Name == own {
			c[own] = &nodes[i]
		}
	}
}

// Pods separates the Pods that run on control planes from all others.
func (c ControlPlanes) Pods(pods []corev1.Pod) (own, others []corev1.Pod) {
	for _, pod := range pods {
		if c[pod.Spec.NodeName] != nil {
			own = append(own, pod)
		} else {
			others = append(others, pod)
		}
	}
	return own, others
}

// Has reports whether an address or a host name is one of a control plane's, as its Node has them.
func (c ControlPlanes) Has(node, host string) bool {
	n := c[node]
	return n != nil && slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return SameHost(a.Address, host) })
}

// SameHost reports whether two texts are the same address, in whatever form, or the same name.
func SameHost(a, b string) bool {
	left, err := netip.ParseAddr(a)
	right, other := netip.ParseAddr(b)
	if err != nil || other != nil {
		return a == b && a != ""
	}
	return left.Unmap() == right.Unmap()
}
