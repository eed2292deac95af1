// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// taintedNode is a Ready control plane with a full disk.
func taintedNode() *corev1.Node {
	n := phasetest.ReadyNode(corev1.ConditionTrue, "")
	n.Spec.Taints = []corev1.Taint{
		{Key: cluster.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
	}
	return n
}

func TestWaitNode(t *testing.T) {
	ready := phasetest.ReadyNode(corev1.ConditionTrue, "")
	dns, proxy := phasetest.APod("coredns", "ready"), phasetest.APod("kube-proxy", "critical host ready")
	unplugged := phasetest.ReadyNode(corev1.ConditionFalse, "container runtime network not ready: cni plugin not initialized")
	joined := func(n *config.Node) { n.Join = &config.Join{} }
	dedicated := func(n *config.Node) {
		n.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	}
	for name, c := range map[string]struct {
		node   *corev1.Node
		pods   []corev1.Pod
		change func(*config.Node)
		want   []string // in the error; none for success
	}{
		"all is well":              {ready, []corev1.Pod{proxy, dns}, nil, nil},
		"no report":                {cluster.NewNode("cp-1"), nil, nil, []string{"kubelet", "not reported", "node cp-1"}},
		"not Ready":                {phasetest.ReadyNode(corev1.ConditionFalse, "PLEG is not healthy"), nil, nil, []string{"node cp-1", "not Ready: PLEG"}},
		"no network yet":           {unplugged, nil, nil, unconfigured},
		"a network's Pod to come":  {unplugged, []corev1.Pod{phasetest.APod("kube-proxy", "critical host")}, joined, unconfigured},
		"a network on its way":     {unplugged, []corev1.Pod{proxy, phasetest.APod("cilium", "host")}, joined, unconfigured},
		"tainted by its file":      {ready, []corev1.Pod{proxy}, dedicated, nil},
		"no Pod":                   {ready, nil, nil, unscheduled},
		"tainted":                  {taintedNode(), nil, nil, []string{"no Pod", "node cp-1", "taint node.kubernetes.io/disk-pressure"}},
		"only static Pods":         {ready, []corev1.Pod{phasetest.APod("etcd", "static critical ready")}, nil, unscheduled},
		"no Pod of the network":    {ready, []corev1.Pod{proxy}, nil, unscheduled},
		"a Pod that runs":          {ready, []corev1.Pod{proxy, phasetest.APod("coredns", "runs")}, nil, nil},
		"a Pod that waits":         {ready, []corev1.Pod{proxy, phasetest.APod("coredns", "")}, nil, []string{"Pod kube-system/coredns", "not run: container c: ImagePullBackOff: no network"}},
		"a critical Pod that runs": {ready, []corev1.Pod{phasetest.APod("kube-proxy", "critical host runs"), dns}, nil, []string{"Pod kube-system/kube-proxy", "not Ready:"}},
		"a critical Pod that does": {ready, []corev1.Pod{dns, phasetest.APod("kube-flannel", "critical host")}, nil, []string{"Pod kube-system/kube-flannel", "not Ready: container c: ImagePullBackOff: no network"}},
		"a Pod of the user's":      {ready, []corev1.Pod{phasetest.APod("shop", ""), proxy, dns}, nil, nil},
		"a worker":                 {ready, []corev1.Pod{proxy}, joined, nil},
		"a worker without a Pod":   {ready, nil, joined, unscheduled},
		"neither DNS nor kube-proxy": {ready, nil, func(n *config.Node) { n.Cluster.DNS.Disabled, n.Cluster.Proxy.Disabled = true, true },
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.NetworkAddOn.Name = config.Flannel
			if c.change != nil {
				c.change(s.Config)
			}
			phasetest.Fatal(t, s.API.Ensure(t.Context(), addOns(t, s.Env)...))
			s.Cluster = &phasetest.OneNode{Plan: s.API, Node: c.node, Running: c.pods}
			err := step.Run(t.Context(), s.Env, []step.Phase{WaitNode()}, step.Options{})
			fact.Error(t, err, c.want...)
			if c.want == nil {
				s.SaidOnce(t, phasetest.Line{"Node cp-1", "is Ready,", "runs Pods"})
			}
		})
	}
}

// unconfigured and unscheduled are in the error about a node without a Pod network, or without a Pod.
var unconfigured, unscheduled = []string{"no network add-on"}, []string{"no Pod", "scheduled"}

// addOns returns CoreDNS's Deployment and kube-proxy's DaemonSet, unless they're disabled.
func addOns(t *testing.T, env *step.Env) (objs []cluster.Object) {
	t.Helper()
	for _, addon := range []struct {
		disabled bool
		objects  func(*config.Node, config.PatchSet) ([]manifests.Object, error)
	}{{env.Config.Cluster.DNS.Disabled, manifests.CoreDNS}, {env.Config.Cluster.Proxy.Disabled, manifests.KubeProxy}} {
		if addon.disabled {
			continue
		}
		list, err := addon.objects(env.Config, config.PatchSet{})
		phasetest.Fatal(t, err)
		for _, obj := range list {
			switch obj.(type) {
			case *appsv1.Deployment, *appsv1.DaemonSet:
				objs = append(objs, obj)
			}
		}
	}
	return objs
}

// TestWaitNodeAgain: CoreDNS may have moved to another node since the first run, or an operator has removed it.
func TestWaitNodeAgain(t *testing.T) {
	elsewhere := phasetest.APod("coredns", "ready")
	elsewhere.Spec.NodeName = "worker-1"
	none := int32(0)
	for name, c := range map[string]struct {
		dns    []corev1.Pod
		change func(*appsv1.Deployment)
		want   []string
	}{
		"on no node":     {dns: []corev1.Pod{phasetest.APod("coredns", "")}, want: unscheduled},
		"elsewhere":      {dns: []corev1.Pod{phasetest.APod("coredns", ""), elsewhere}},
		"scaled to none": {change: func(d *appsv1.Deployment) { d.Spec.Replicas = &none }},
		"not there":      {change: func(d *appsv1.Deployment) { d.Name = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.NetworkAddOn.Name = config.Flannel
			for _, obj := range addOns(t, s.Env) {
				if d, ok := obj.(*appsv1.Deployment); ok && c.change != nil {
					c.change(d)
				}
				phasetest.Fatal(t, s.API.Ensure(t.Context(), obj))
			}
			s.Cluster = &phasetest.OneNode{Plan: s.API, Node: phasetest.ReadyNode(corev1.ConditionTrue, ""), Running: []corev1.Pod{phasetest.APod("kube-proxy", "critical host ready")}, DNS: c.dns}
			err := step.Run(t.Context(), s.Env, []step.Phase{WaitNode()}, step.Options{})
			fact.Error(t, err, c.want...)
		})
	}
}

// TestWaitNodeJoinedWithoutNetwork: the cluster gives the node nothing but kube-proxy, so it never becomes Ready.
func TestWaitNodeJoinedWithoutNetwork(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.Join = &config.Join{}
	api := &phasetest.OneNode{Plan: s.API, Node: phasetest.ReadyNode(corev1.ConditionFalse, "cni plugin not initialized"),
		Running: []corev1.Pod{phasetest.APod("etcd", "static critical ready"), phasetest.APod("kube-proxy", "critical host ready")}}
	s.Cluster, s.FakeHost.Has.Time = api, time.Now()
	if err := step.Run(t.Context(), s.Env, []step.Phase{WaitNode()}, step.Options{}); err == nil {
		t.Error("the network's Pod may still come")
	}
	api.Passes = func() { s.FakeHost.Pass(networkPodTimeout) }
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, []step.Phase{WaitNode()}, step.Options{}))
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "node cp-1", "not Ready", "no Pod network"})
	fact.NotIn(t, s.Said.String(), "runs Pods")
}

// TestWaitNodeForLateNetwork: the network's Pod may come long after kube-proxy's, if this run has installed the network, or the
// limit suits a slow cluster.
func TestWaitNodeForLateNetwork(t *testing.T) {
	for name, change := range map[string]func(*config.Node){
		"this run's network": func(n *config.Node) { n.NetworkAddOn.Name = config.Flannel },
		"a slow cluster":     func(n *config.Node) { n.Join, n.Timeouts.KubeletHealthCheck = &config.Join{}, time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			change(s.Config)
			api := &phasetest.OneNode{Plan: s.API, Node: phasetest.ReadyNode(corev1.ConditionFalse, "cni plugin not initialized"),
				Running: []corev1.Pod{phasetest.APod("kube-proxy", "critical host ready")}}
			s.Cluster, s.FakeHost.Has.Time = api, time.Now()
			api.Passes = func() { s.FakeHost.Pass(networkPodTimeout) }
			if err := step.Run(t.Context(), s.Env, []step.Phase{WaitNode()}, step.Options{}); err == nil {
				t.Error("the wait ended without the network's Pod")
			}
			fact.NotIn(t, s.Said.String(), "no Pod network")
		})
	}
}

// TestWaitNodeWithoutNetwork: the node can't become Ready, and the run says so instead of waiting.
func TestWaitNodeWithoutNetwork(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, WaitNode())
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "node cp-1", "not Ready", "no Pod network"})
	s.Put(t, "/etc/cni/net.d/10-own.conflist", "{}")
	s.Said.Reset()
	s.Play(t, WaitNode())
	s.SaidOnce(t, phasetest.Line{"Waiting", "node cp-1", "Ready"})
}
