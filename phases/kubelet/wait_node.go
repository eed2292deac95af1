// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// WaitNode is the phase wait-node of up.
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
		reportNoNetwork(env, name)
		return nil
	}
	limit := &env.Config.Timeouts.KubeletHealthCheck
	env.UI.Printf("Waiting until node %s is Ready and runs a Pod, up to %s", name, *limit)
	failure := "node " + name + " does not run Pods yet"
	noNetwork, lacking := false, time.Time{}
	patience := max(networkPodTimeout, *limit/24) // the default limit's 24th is networkPodTimeout
	err := env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		due, err := podsDue(ctx, env, name)
		if err != nil {
			return err
		}
		return env.Cluster.AwaitNode(ctx, name, func(reported *corev1.Node, pods []corev1.Pod) error {
			switch now := env.Host.Now(); {
			case env.Config.NetworkAddOn.Name != "", !lacksNetwork(reported, pods):
				lacking = time.Time{}
			case lacking.IsZero():
				lacking = now
			case now.Sub(lacking) >= patience:
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
		reportNoNetwork(env, name)
		return nil
	}
	env.UI.Nextf("Node %s is Ready, and runs Pods.", name)
	return nil
}

func reportNoNetwork(env *step.Env, node string) {
	remedy := "install a network add-on in the cluster"
	if env.Config.Join == nil {
		remedy = "install a network add-on, or run the same command again with --network flannel"
	}
	env.UI.Warn("node "+node+" is not Ready yet, because the cluster has no Pod network", remedy)
}

// willHaveNetwork reports whether the node can become Ready: this run includes a network add-on, or an existing add-on has
// configured its network on this host.
func willHaveNetwork(env *step.Env) bool {
	configured, _ := env.Host.ReadDir("/etc/cni/net.d") // it needn't exist
	isNetwork := func(e fs.DirEntry) bool { return preflight.IsNetwork(e.Name()) }
	return env.Config.NetworkAddOn.Name != "" || slices.ContainsFunc(configured, isNetwork)
}

// networkPodTimeout is how long the Pod of a network add-on that this run hasn't installed may come after kube-proxy's, longer with
// a raised limit. The cluster gives a new node the Pods of all its DaemonSets at once, but a busy cluster may take some seconds.
const networkPodTimeout = 10 * time.Second

// lacksNetwork reports whether nothing is on its way to configure the node's network: kube-proxy's Pod already runs, and the node
// has no other.
func lacksNetwork(reported *corev1.Node, pods []corev1.Pod) bool {
	uninitialized := slices.ContainsFunc(reported.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && strings.Contains(c.Message, node.NoPlugin)
	})
	proxyRuns := false
	for _, p := range pods {
		switch {
		case cluster.IsMirror(&p):
		case p.Labels["k8s-app"] == manifests.KubeProxyName:
			proxyRuns = podRunning(&p)
		default:
			return false
		}
	}
	return uninitialized && proxyRuns
}

// expectedPods are the Pods a node must get.
type expectedPods struct {
	// any says that the cluster gives the node a Pod, as it gives every node kube-proxy.
	any bool
	// ofNetwork says that such a Pod has an address in the Pod network, like CoreDNS.
	ofNetwork bool
}

// podsDue returns the Pods due on this node. The first node looks in the cluster: CoreDNS has to run there unless it runs
// elsewhere, or must not run there. Another node's kubelet isn't allowed to look, and can only expect kube-proxy.
func podsDue(ctx context.Context, env *step.Env, node string) (expectedPods, error) {
	n := env.Config
	if n.Join != nil {
		return expectedPods{any: !n.Cluster.Proxy.Disabled}, nil
	}
	proxy := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.KubeProxyName}}
	everywhere, err := env.Cluster.Get(ctx, proxy)
	if err != nil {
		return expectedPods{}, err
	}
	ofNetwork, err := dnsDue(ctx, env, node)
	return expectedPods{any: everywhere || ofNetwork, ofNetwork: ofNetwork}, err
}

// dnsDue reports whether CoreDNS can run only on this node.
func dnsDue(ctx context.Context, env *step.Env, node string) (bool, error) {
	dns := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.CoreDNSName}}
	found, err := env.Cluster.Get(ctx, dns)
	if err != nil || !found || dns.Spec.Replicas != nil && *dns.Spec.Replicas == 0 || !tolerates(dns.Spec.Template.Spec.Tolerations, env.Config.Taints) {
		return false, err
	}
	pods, err := env.Cluster.Pods(ctx, metav1.NamespaceSystem, metav1.FormatLabelSelector(dns.Spec.Selector))
	elsewhere := func(p corev1.Pod) bool { return p.Spec.NodeName != "" && p.Spec.NodeName != node }
	return !slices.ContainsFunc(pods, elsewhere), err
}

func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, true) })
	})
}

// run looks for a running Pod, and for Pods that aren't Ready although a node can't do without them, such as kube-proxy and a
// network add-on's.
func (d expectedPods) run(node *corev1.Node, pods []corev1.Pod) error {
	runs := !d.any
	waiting := noPod(node)
	for _, p := range pods {
		critical, counts := p.Spec.PriorityClassName == "system-node-critical", !d.ofNetwork || !p.Spec.HostNetwork
		switch {
		case cluster.IsMirror(&p) || !critical && !counts:
		case critical && !cluster.PodReady(&p):
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

// noPod says why no Pod has been scheduled to a node, as far as its taints show. The control plane's own taint is no reason: the
// expected Pods tolerate it.
func noPod(reported *corev1.Node) error {
	var taints []string
	for _, t := range reported.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != cluster.LabelControlPlane {
			taints = append(taints, t.Key)
		}
	}
	if len(taints) == 0 {
		return errors.New("no Pod has been scheduled to this node yet")
	}
	return fault.New("no Pod can be scheduled to node "+reported.Name+" while it has the taint "+strings.Join(taints, ", "),
		"`kubectl describe node "+reported.Name+"` says what is wrong with it: disk-pressure, for example, means that too little of a disk is free")
}

// podRunning reports whether all containers of a Pod run. CoreDNS takes another ten seconds to become Ready if its first check
// fails.
func podRunning(p *corev1.Pod) bool {
	stopped := func(c corev1.ContainerStatus) bool { return c.State.Running == nil }
	return p.Status.PodIP != "" && len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, stopped)
}

// whyNotReady returns the kubelet's reason from the Pod's status.
func whyNotReady(p *corev1.Pod) string {
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := c.State.Waiting; w != nil {
			return "container " + c.Name + ": " + strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return "it is " + string(p.Status.Phase)
}
