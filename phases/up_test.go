// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/workflow"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// oneNode is an API with one Node, the Pods on it, and those of CoreDNS on all nodes.
type oneNode struct {
	*cluster.Plan
	node *corev1.Node
	pods []corev1.Pod
	dns  []corev1.Pod
	// passes lets time pass.
	passes func()
}

func (o *oneNode) Pods(context.Context, string, string) ([]corev1.Pod, error) { return o.dns, nil }

// AwaitNode looks once or, if time passes, again after that.
func (o *oneNode) AwaitNode(_ context.Context, _ string, check func(*corev1.Node, []corev1.Pod) error) error {
	err := check(o.node, o.pods)
	if o.passes != nil {
		o.passes()
		err = check(o.node, o.pods)
	}
	return err
}

func readyNode(status corev1.ConditionStatus, message string) *corev1.Node {
	n := cluster.NewNode("cp-1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}}
	return n
}

// aPod is one of the Pods on a node. kind has words that describe it.
func aPod(name, kind string) corev1.Pod {
	p := corev1.Pod{}
	p.Name, p.Namespace, p.Labels = name, "kube-system", map[string]string{"k8s-app": name}
	if strings.Contains(kind, "static") {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if strings.Contains(kind, "critical") {
		p.Spec.PriorityClassName = "system-node-critical"
	}
	p.Spec.HostNetwork = strings.Contains(kind, "host")
	status := corev1.ConditionFalse
	if strings.Contains(kind, "ready") {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	p.Status.PodIP = "10.244.0.2"
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no network"}}
	if strings.Contains(kind, "ready") || strings.Contains(kind, "runs") {
		state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: state}}
	return p
}

// taintedNode is a Ready control plane with a full disk.
func taintedNode() *corev1.Node {
	n := readyNode(corev1.ConditionTrue, "")
	n.Spec.Taints = []corev1.Taint{
		{Key: cluster.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
	}
	return n
}

func TestWaitNode(t *testing.T) {
	ready := readyNode(corev1.ConditionTrue, "")
	dns, proxy := aPod("coredns", "ready"), aPod("kube-proxy", "critical host ready")
	unplugged := readyNode(corev1.ConditionFalse, "container runtime network not ready: cni plugin not initialized")
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
		"not Ready":                {readyNode(corev1.ConditionFalse, "PLEG is not healthy"), nil, nil, []string{"node cp-1", "not Ready: PLEG"}},
		"no network yet":           {unplugged, nil, nil, unconfigured},
		"a network's Pod to come":  {unplugged, []corev1.Pod{aPod("kube-proxy", "critical host")}, joined, unconfigured},
		"a network on its way":     {unplugged, []corev1.Pod{proxy, aPod("cilium", "host")}, joined, unconfigured},
		"tainted by its file":      {ready, []corev1.Pod{proxy}, dedicated, nil},
		"no Pod":                   {ready, nil, nil, unscheduled},
		"tainted":                  {taintedNode(), nil, nil, []string{"no Pod", "node cp-1", "taint node.kubernetes.io/disk-pressure"}},
		"only static Pods":         {ready, []corev1.Pod{aPod("etcd", "static critical ready")}, nil, unscheduled},
		"no Pod of the network":    {ready, []corev1.Pod{proxy}, nil, unscheduled},
		"a Pod that runs":          {ready, []corev1.Pod{proxy, aPod("coredns", "runs")}, nil, nil},
		"a Pod that waits":         {ready, []corev1.Pod{proxy, aPod("coredns", "")}, nil, []string{"Pod kube-system/coredns", "not run: container c: ImagePullBackOff: no network"}},
		"a critical Pod that runs": {ready, []corev1.Pod{aPod("kube-proxy", "critical host runs"), dns}, nil, []string{"Pod kube-system/kube-proxy", "not Ready:"}},
		"a critical Pod that does": {ready, []corev1.Pod{dns, aPod("kube-flannel", "critical host")}, nil, []string{"Pod kube-system/kube-flannel", "not Ready: container c: ImagePullBackOff: no network"}},
		"a Pod of the user's":      {ready, []corev1.Pod{aPod("shop", ""), proxy, dns}, nil, nil},
		"a worker":                 {ready, []corev1.Pod{proxy}, joined, nil},
		"a worker without a Pod":   {ready, nil, joined, unscheduled},
		"neither DNS nor kube-proxy": {ready, nil, func(n *config.Node) { n.Cluster.DNS.Disabled, n.Cluster.Proxy.Disabled = true, true },
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.NetworkAddOn.Name = config.Flannel
			if c.change != nil {
				c.change(s.Config)
			}
			fatal(t, s.api.Ensure(t.Context(), addOns(t, s.Env)...))
			s.Cluster = &oneNode{Plan: s.api, node: c.node, pods: c.pods}
			err := Run(t.Context(), s.Env, []Phase{waitNode()}, Options{})
			fact.Error(t, err, c.want...)
			if c.want == nil {
				s.saidOnce(t, line{"Node cp-1", "is Ready,", "runs Pods"})
			}
		})
	}
}

// unconfigured and unscheduled are in the error about a node without a Pod network, or without a Pod.
var unconfigured, unscheduled = []string{"no network add-on"}, []string{"no Pod", "scheduled"}

// addOns are the Deployment of CoreDNS and the DaemonSet of kube-proxy, unless the configuration has neither.
func addOns(t *testing.T, env *Env) (objs []cluster.Object) {
	t.Helper()
	for _, addon := range []struct {
		disabled bool
		objects  func(*config.Node, config.PatchSet) ([]manifests.Object, error)
	}{{env.Config.Cluster.DNS.Disabled, manifests.CoreDNS}, {env.Config.Cluster.Proxy.Disabled, manifests.KubeProxy}} {
		if addon.disabled {
			continue
		}
		list, err := addon.objects(env.Config, config.PatchSet{})
		fatal(t, err)
		for _, obj := range list {
			switch obj.(type) {
			case *appsv1.Deployment, *appsv1.DaemonSet:
				objs = append(objs, obj)
			}
		}
	}
	return objs
}

// TestWaitNodeAgain: CoreDNS may have moved to another node since the first run, or an operator has taken it away.
func TestWaitNodeAgain(t *testing.T) {
	elsewhere := aPod("coredns", "ready")
	elsewhere.Spec.NodeName = "worker-1"
	none := int32(0)
	for name, c := range map[string]struct {
		dns    []corev1.Pod
		change func(*appsv1.Deployment)
		want   []string
	}{
		"on no node":     {dns: []corev1.Pod{aPod("coredns", "")}, want: unscheduled},
		"elsewhere":      {dns: []corev1.Pod{aPod("coredns", ""), elsewhere}},
		"scaled to none": {change: func(d *appsv1.Deployment) { d.Spec.Replicas = &none }},
		"not there":      {change: func(d *appsv1.Deployment) { d.Name = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.NetworkAddOn.Name = config.Flannel
			for _, obj := range addOns(t, s.Env) {
				if d, ok := obj.(*appsv1.Deployment); ok && c.change != nil {
					c.change(d)
				}
				fatal(t, s.api.Ensure(t.Context(), obj))
			}
			s.Cluster = &oneNode{Plan: s.api, node: readyNode(corev1.ConditionTrue, ""), pods: []corev1.Pod{aPod("kube-proxy", "critical host ready")}, dns: c.dns}
			err := Run(t.Context(), s.Env, []Phase{waitNode()}, Options{})
			fact.Error(t, err, c.want...)
		})
	}
}

// TestWaitNodeJoinedWithoutNetwork: kube-proxy is all that the cluster gives to the node, which therefore never becomes Ready.
func TestWaitNodeJoinedWithoutNetwork(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.Join = &config.Join{}
	api := &oneNode{Plan: s.api, node: readyNode(corev1.ConditionFalse, "cni plugin not initialized"),
		pods: []corev1.Pod{aPod("etcd", "static critical ready"), aPod("kube-proxy", "critical host ready")}}
	s.Cluster, s.host.Has.Time = api, time.Now()
	if err := Run(t.Context(), s.Env, []Phase{waitNode()}, Options{}); err == nil {
		t.Error("the network's Pod may still come")
	}
	api.passes = func() { s.host.Pass(networkTime) }
	fatal(t, Run(t.Context(), s.Env, []Phase{waitNode()}, Options{}))
	s.saidOnce(t, line{"[WARNING]", "node cp-1", "not Ready", "no Pod network"})
	fact.NotIn(t, s.said.String(), "runs Pods")
}

// TestWaitNodeWithoutNetwork: the node cannot become Ready, which the run says instead of waiting.
func TestWaitNodeWithoutNetwork(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, waitNode())
	s.saidOnce(t, line{"[WARNING]", "node cp-1", "not Ready", "no Pod network"})
	s.put(t, "/etc/cni/net.d/10-own.conflist", "{}")
	s.said.Reset()
	s.play(t, waitNode())
	s.saidOnce(t, line{"Waiting", "node cp-1", "Ready"})
}

// TestSchedulable takes the taint of an earlier run, and no other.
func TestSchedulable(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	object := cluster.NewNode("cp-1")
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoSchedule}
	object.Spec.Taints = []corev1.Taint{{Key: cluster.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, own}
	fatal(t, s.api.Ensure(t.Context(), object))
	taints := func() []corev1.Taint {
		live := cluster.NewNode("cp-1")
		_, err := s.api.Get(t.Context(), live)
		fatal(t, err)
		return live.Spec.Taints
	}
	s.play(t, schedulable())
	if len(taints()) != 2 {
		t.Errorf("without the flag: %v", taints())
	}
	s.Config.Schedulable = true
	s.play(t, schedulable())
	s.done = nil
	s.play(t, schedulable())
	if diff := cmp.Diff([]corev1.Taint{own}, taints()); diff != "" || len(s.done) > 0 {
		t.Errorf("did %q; taints, -want +got:\n%s", s.done, diff)
	}
}

// TestUpCommand: further hosts need the bundle, too.
func TestUpCommand(t *testing.T) {
	for file, want := range map[string]string{"": "up", "/opt/b.tar": "up --bundle /opt/b.tar", "my bundle.tar": "up --bundle 'my bundle.tar'"} {
		if got := upCommand(&Prepare{BundleFile: file}); got != want {
			t.Errorf("%q: %s, want %s", file, got, want)
		}
	}
	if got := upCommand(&Prepare{BundleFile: "b.tar", BundleDigest: "sha256:00"}); got != "up --bundle b.tar --digest sha256:00" {
		t.Error(got)
	}
}

// TestUpIsItsParts: up has all phases of host prepare, init and join, and waits for them in the same order.
func TestUpIsItsParts(t *testing.T) {
	prefixed := func(part string, paths []string) (out []string) {
		for _, path := range paths {
			out = append(out, part+"/"+path)
		}
		return append([]string{part}, out...)
	}
	prepare, host := &Prepare{}, &config.Node{}
	want := append(prefixed("prepare", workflow.Paths(prepare.Phases())), prefixed("init", workflow.Paths(Init()))...)
	want = append(want, "schedulable", "wait-node")
	if diff := cmp.Diff(want, workflow.Paths(Up(prepare, host))); diff != "" {
		t.Errorf("up, -want +got:\n%s", diff)
	}
	want = append(prefixed("reset", workflow.Paths(Reset())), prefixed("host", workflow.Paths(HostReset()))...)
	if diff := cmp.Diff(want, workflow.Paths(DownHost(host))); diff != "" {
		t.Errorf("down --host, -want +got:\n%s", diff)
	}
}
