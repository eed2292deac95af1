// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/step"
)

const labelCheck = "ControlPlaneLabel"

// strayPods finds control plane Pods on Nodes without the label: somebody has removed it, or a worker pretends. They don't count.
func strayPods(state *upgrading.State) []fault.Finding {
	var found []fault.Finding
	var seen []string
	for _, pod := range state.Strays {
		name := pod.Spec.NodeName
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		var names []string
		for _, other := range state.Strays {
			if other.Spec.NodeName == name {
				names = append(names, other.Name)
			}
		}
		found = append(found, fault.NewFinding(labelCheck, fault.Warning,
			"if it is a control plane, label it: `kubectl label node "+name+" "+cluster.LabelControlPlane+"=`; if it is a worker, find out who runs these Pods there, and do not trust it",
			"node %s has Pods of a control plane (%s), but not the label %s: they are neither asked nor counted", name, strings.Join(names, ", "), cluster.LabelControlPlane))
	}
	return found
}

// lookFromHere looks at the cluster. A control plane counts itself, even without the label.
func lookFromHere(ctx context.Context, env *step.Env) (*upgrading.State, error) {
	state, err := upgrading.Look(ctx, env.Cluster)
	if err == nil && env.Config.ControlPlane {
		state.Count(env.Config.Name)
	}
	return state, err
}

// unmarkedHere warns if this control plane's Node lacks the label, so the others neither wait for it nor count it.
func unmarkedHere(env *step.Env, nodes []corev1.Node) []fault.Finding {
	here := func(n corev1.Node) bool { return n.Name == env.Config.Name }
	if !env.Config.ControlPlane || !slices.ContainsFunc(nodes, here) || cluster.ControlPlanesOf(nodes)[env.Config.Name] != nil {
		return nil
	}
	return []fault.Finding{fault.NewFinding(labelCheck, fault.Warning,
		"label it: `kubectl label node "+env.Config.Name+" "+cluster.LabelControlPlane+"=`",
		"node %s, which this host is, lacks the label %s: other control planes neither wait for it nor ask its etcd", env.Config.Name, cluster.LabelControlPlane)}
}
