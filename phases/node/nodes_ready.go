// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// ReadyInterval is how often a starting API server is asked if it's ready.
const ReadyInterval = 100 * time.Millisecond

// NoPlugin is part of the kubelet's message about its node as long as the runtime has no network configuration.
const NoPlugin = "cni plugin not initialized"

// NodeReady returns nil for a Ready Node, and otherwise the reason why it isn't.
func NodeReady(node *corev1.Node) error {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.Errorf("the kubelet has not reported how node %s is", node.Name)
	}
	switch c := node.Status.Conditions[i]; {
	case c.Status == corev1.ConditionTrue:
		return nil
	case strings.Contains(c.Message, NoPlugin):
		return fault.New("node "+node.Name+" is not Ready: no network add-on has configured its network",
			"install one in the cluster, or see why its Pod on this node fails")
	default:
		return errors.Errorf("node %s is not Ready: %s", node.Name, c.Message)
	}
}

// NodesReadyCheck is the name of the check that other control planes are Ready.
const NodesReadyCheck = "ControlPlaneNodesReady"

// NewNodesReadyCheck is the check ControlPlaneNodesReady: while this control plane restarts, only the others serve.
func NewNodesReadyCheck(env *step.Env) preflight.Check {
	return preflight.Check{Name: NodesReadyCheck, Description: "all control plane nodes are Ready", Run: func(ctx context.Context, _ preflight.View) []fault.Finding {
		nodes, err := env.Cluster.Nodes(ctx)
		if err != nil {
			return []fault.Finding{fault.Of(err)}
		}
		return NodesNotReady(nodes, env.Config.Name)
	}}
}

// NodesNotReady finds the control planes among nodes that aren't Ready, except the node with this name.
func NodesNotReady(nodes []corev1.Node, except string) []fault.Finding {
	var found []fault.Finding
	planes := cluster.ControlPlanesOf(nodes)
	for _, name := range slices.Sorted(maps.Keys(planes)) {
		if name == except || NodeReady(planes[name]) == nil {
			continue
		}
		found = append(found, fault.NewFinding("", fault.Error,
			"`slipway diagnose` there says what is wrong; remove a node that will not come back (`kubectl delete node`)",
			"control plane node %s is not Ready", name))
	}
	return found
}
