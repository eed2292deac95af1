// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

func WaitNode() step.Phase {
	return step.Phase{
		Name:    "wait-node",
		Summary: "Wait until this node is Ready and runs a Pod",
		Run:     runWaitNode,
	}
}

// runWaitNode waits until the node is Ready and runs a Pod from the cluster, as its user expects.
func runWaitNode(ctx context.Context, env *step.Env) error {
	name := thisnode.RegisteredName(env.Host, env.Config)
	if env.Config.Join == nil && !willHaveNetwork(env) {
		sayNoNetwork(env, name)
		return nil
	}
	limit := env.Config.Timeouts.KubeletHealthCheck
	env.UI.Printf("Waiting until node %s is Ready and runs a Pod, up to %s", name, limit)
	failure := "node " + name + " does not run Pods yet"
	noNetwork, lacking := false, time.Time{}
	err := diagnose.Guard(ctx, env.Host, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		due, err := podsDue(ctx, env, name)
		if err != nil {
			return err
		}
		return env.Cluster.AwaitNode(ctx, name, func(reported *corev1.Node, pods []corev1.Pod) error {
			switch now := env.Host.Now(); {
			case !lacksNetwork(reported, pods):
				lacking = time.Time{}
			case lacking.IsZero():
				lacking = now
			case now.Sub(lacking) >= networkTime:
				noNetwork = true
				return nil
			}
			if err := node.NodeReady(reported); err != nil {
				return err
			}
			return due.run(reported, pods)
		})
	})
	if err != nil {
		return err
	}
	if noNetwork {
		sayNoNetwork(env, name)
		return nil
	}
	env.UI.Nextf("Node %s is Ready, and runs Pods.", name)
	return nil
}

func sayNoNetwork(env *step.Env, node string) {
	remedy := "install a network add-on in the cluster"
	if env.Config.Join == nil {
		remedy = "install a network add-on, or run the same command again with --network flannel"
	}
	env.UI.Warn("node "+node+" is not Ready yet, because the cluster has no Pod network", remedy)
}

// willHaveNetwork reports whether the node can become Ready: this run includes a network add-on, or an existing one has
// configured its network on this host.
func willHaveNetwork(env *step.Env) bool {
	if env.Config.NetworkAddOn.Name != "" {
		return true
	}
	const dir = "/etc/cni/net.d"
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if preflight.IsNetwork(e.Name()) {
			return true
		}
	}
	return false
}

// networkTime is how long a network add-on's Pod may come after kube-proxy's. The cluster gives a new node the Pods of all its
// DaemonSets at once, but a busy cluster may take some seconds.
const networkTime = 10 * time.Second

// lacksNetwork reports whether nothing is on its way to configure the node's network: kube-proxy's Pod already runs, and the node
// has no other.
func lacksNetwork(reported *corev1.Node, pods []corev1.Pod) bool {
	uninitialized := slices.ContainsFunc(reported.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && strings.Contains(c.Message, node.NoPlugin)
	})
	proxyRuns := false
	for _, p := range pods {
		switch {
		case ofNode(&p):
		case p.Labels["k8s-app"] == manifests.KubeProxyName:
			proxyRuns = podRunning(&p)
		default:
			return false
		}
	}
	return uninitialized && proxyRuns
}
