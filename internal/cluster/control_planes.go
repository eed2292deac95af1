// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// LabelControlPlane marks control planes' Nodes. Only clients that may change any Node can set it: the admission plugin
// NodeRestriction refuses it to kubelets.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// ControlPlanes maps names to control planes' Nodes. Claims about control planes count only from their own kubelets: a worker's
// kubelet can create a mirror Pod of itself in any namespace, with the labels, annotations and image of an API server or an etcd.
type ControlPlanes map[string]*corev1.Node

func ControlPlanesOf(nodes []corev1.Node) ControlPlanes {
	planes := ControlPlanes{}
	for i := range nodes {
		if _, marked := nodes[i].Labels[LabelControlPlane]; marked {
			planes[nodes[i].Name] = &nodes[i]
		}
	}
	return planes
}

// Count adds this host's Node even if somebody has removed its label: the host's files say that it's a control plane. No other
// Node can be known that way.
func (c ControlPlanes) Count(nodes []corev1.Node, own string) {
	for i := range nodes {
		if nodes[i].Name == own {
			c[own] = &nodes[i]
		}
	}
}

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

// Has reports whether host is one of the addresses or names in a control plane's Node.
func (c ControlPlanes) Has(node, host string) bool {
	n := c[node]
	return n != nil && slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return SameHost(a.Address, host) })
}

// SameHost reports whether two texts are the same address, in any form, or the same name.
func SameHost(a, b string) bool {
	left, err := netip.ParseAddr(a)
	right, other := netip.ParseAddr(b)
	if err != nil || other != nil {
		return a == b && a != ""
	}
	return left.Unmap() == right.Unmap()
}
