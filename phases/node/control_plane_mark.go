// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// labelExcludeFromLBs marks control planes, besides cluster.LabelControlPlane:
// https://kubernetes.io/docs/reference/labels-annotations-taints/
const labelExcludeFromLBs = "node.kubernetes.io/exclude-from-external-load-balancers"

// ControlPlaneMark is what marks a Node as a control plane. Only an administrator can give it to a Node: its kubelet may not.
func ControlPlaneMark(n *config.Node) cluster.Mark {
	return cluster.Mark{Labels: map[string]string{cluster.LabelControlPlane: "", labelExcludeFromLBs: ""}, Taints: n.Taints}
}

// MarkLacking returns the part of a mark that a Node lacks.
func MarkLacking(node *corev1.Node, mark cluster.Mark) cluster.Mark {
	lacks := cluster.Mark{Labels: maps.Clone(mark.Labels)}
	maps.DeleteFunc(lacks.Labels, func(label, _ string) bool { _, there := node.Labels[label]; return there })
	for _, taint := range mark.Taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			lacks.Taints = append(lacks.Taints, taint)
		}
	}
	return lacks
}

// MarkNames lists a mark's labels and taints.
func MarkNames(mark cluster.Mark) (names []string) {
	for _, label := range slices.Sorted(maps.Keys(mark.Labels)) {
		names = append(names, "label "+label)
	}
	for _, taint := range mark.Taints {
		names = append(names, "taint "+taint.ToString())
	}
	return names
}
