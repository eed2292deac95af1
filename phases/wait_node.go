// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

func waitNode() Phase {
	return Phase{
		Name:    "wait-node",
		Summary: "Wait until this node is Ready and runs a Pod",
		Run:     runWaitNode,
	}
}

// runWaitNode waits for what a user of the node needs: it is Ready, and a Pod that the cluster has given it runs.
func runWaitNode(ctx context.Context, env *Env) error {
	name := thisnode.RegisteredName(env.Host, env.Config)
	if env.Config.Join == nil && !willHaveNetwork(env) {
		env.UI.Warn("node "+name+" is not Ready yet, because the cluster has no Pod network",
			"install a network add-on, or run the same command again with --network flannel")
		return nil
	}
	limit := env.Config.Timeouts.KubeletHealthCheck
	env.UI.Printf("Waiting until node %s is Ready and runs a Pod, up to %s", name, limit)
	failure := "node " + name + " does not run Pods yet"
	err := diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitNode(ctx, name, func(node *corev1.Node, pods []corev1.Pod) error {
			if err := nodeReady(node); err != nil {
				return err
			}
			return podRuns(env, node, pods)
		})
	})
	if err != nil {
		return err
	}
	env.UI.Nextf("Node %s is Ready, and runs Pods.", name)
	return nil
}

// willHaveNetwork reports whether the node can become Ready: a network add-on is part of the run, or one has configured its
// network on this host.
func willHaveNetwork(env *Env) bool {
	if env.Config.NetworkAddOn.Name != "" {
		return true
	}
	const dir = "/etc/cni/net.d"
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".conf", ".conflist", ".json":
			return true
		}
	}
	return false
}

// nodeReady says why a Node is not Ready.
func nodeReady(node *corev1.Node) error {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.Errorf("the kubelet has not reported how node %s is", node.Name)
	}
	switch c := node.Status.Conditions[i]; {
	case c.Status == corev1.ConditionTrue:
		return nil
	case strings.Contains(c.Message, "cni plugin not initialized"):
		return fault.New("node "+node.Name+" is not Ready: no network add-on has configured its network",
			"install one in the cluster, or see why its Pod on this node fails")
	default:
		return errors.Errorf("node %s is not Ready: %s", node.Name, c.Message)
	}
}

// podRuns looks for a Pod that runs, and for Pods that a node cannot do without, such as kube-proxy and a network add-on's, and
// that are not Ready. Static Pods do not count: they run without the cluster. The Pod on the first node must have an address of
// the Pod network, as CoreDNS has there; other nodes may have none of these.
func podRuns(env *Env, node *corev1.Node, pods []corev1.Pod) error {
	n := env.Config
	ofNetwork := n.Join == nil && !n.Cluster.DNS.Disabled
	runs := !ofNetwork && n.Cluster.Proxy.Disabled // or the cluster may give this node no Pod
	waiting := noPod(node)
	for _, p := range pods {
		critical, counts := p.Spec.PriorityClassName == "system-node-critical", !ofNetwork || !p.Spec.HostNetwork
		switch {
		case p.Annotations[corev1.MirrorPodAnnotationKey] != "" || !critical && !counts:
		case critical && !podReady(&p):
			return errors.Errorf("Pod %s/%s is not Ready: %s", p.Namespace, p.Name, whyNotReady(&p))
		case podRunning(&p):
			runs = runs || counts
		default:
			waiting = errors.Errorf("Pod %s/%s does not run: %s", p.Namespace, p.Name, whyNotReady(&p))
		}
	}
	if runs {
		return nil
	}
	return waiting
}

// noPod says why the cluster has given a node no Pod, as far as its taints tell. The control plane's own taint is not a reason:
// the Pods that the wait is for tolerate it.
func noPod(node *corev1.Node) error {
	var taints []string
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != labelControlPlane {
			taints = append(taints, t.Key)
		}
	}
	if len(taints) == 0 {
		return errors.New("the cluster has not given this node a Pod")
	}
	return fault.New("the cluster gives node "+node.Name+" no Pod while it has the taint "+strings.Join(taints, ", "),
		"`kubectl describe node "+node.Name+"` says what is wrong with it: disk-pressure, for example, means that too little of a disk is free")
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podRunning reports whether all containers of a Pod run. CoreDNS takes ten seconds more until it is Ready if it was not at the
// first look.
func podRunning(p *corev1.Pod) bool {
	stopped := func(c corev1.ContainerStatus) bool { return c.State.Running == nil }
	return p.Status.PodIP != "" && len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, stopped)
}

// whyNotReady is what the kubelet says of a Pod's containers.
func whyNotReady(p *corev1.Pod) string {
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := c.State.Waiting; w != nil {
			return "container " + c.Name + ": " + strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return "it is " + string(p.Status.Phase)
}
