// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// ReadyInterval is how often a starting API server is asked if it's ready.
const ReadyInterval = 100 * time.Millisecond

// NoPlugin is part of the kubelet's message about its node as long as the runtime has no network configuration.
const NoPlugin = "cni plugin not initialized"

// NodeReady returns the reason why a Node isn't Ready.
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
