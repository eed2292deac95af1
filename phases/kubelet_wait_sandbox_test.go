// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestAwaitSandbox: a node has joined once it can start a Pod, unless the cluster gives it none.
func TestAwaitSandbox(t *testing.T) {
	proxy := []corev1.Pod{aPod("kube-proxy", "critical host")}
	for name, tt := range map[string]struct {
		pods   []corev1.Pod
		has    []host.Sandbox
		passes time.Duration // after the first look
		warns  line
	}{
		"one runs":                           {proxy, []host.Sandbox{{Pod: "kube-proxy", Ready: true}}, 0, nil},
		"one has ended":                      {proxy, []host.Sandbox{{Pod: "kube-proxy"}}, 0, line{"[WARNING]", "node cp-1", "Pod kube-system/kube-proxy"}},
		"none yet":                           {proxy, nil, 0, line{"[WARNING]", "node cp-1", "Pod kube-system/kube-proxy"}},
		"the cluster gives none":             {nil, nil, givenTime, nil},
		"the cluster gives none yet":         {nil, nil, 0, line{"[WARNING]", "node cp-1", "not given"}},
		"static Pods and those of a network": {[]corev1.Pod{aPod("etcd", "static critical host"), aPod("coredns", "")}, nil, givenTime, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.host.Has.Sandboxes, s.host.Has.Time = tt.has, time.Now()
			s.Cluster = &oneNode{Plan: s.api, node: readyNode(corev1.ConditionTrue, ""), pods: tt.pods, passes: func() { s.host.Pass(tt.passes) }}
			fatal(t, awaitSandbox(t.Context(), s.Env))
			if tt.warns == nil {
				fact.NotIn(t, s.said.String(), "[WARNING]")
			} else {
				s.saidOnce(t, tt.warns)
			}
		})
	}
}

// TestJoinNamesSandboxFailure: a node whose Pods can't start is an error within seconds, with the reason.
func TestJoinNamesSandboxFailure(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.host.Has.Sandboxes = nil
	s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", SubState: "running"}
	s.host.Has.Journal = []host.JournalEntry{{Time: time.Now(), Program: "kubelet",
		Message: `E1121 "Failed to generate sandbox config for pod" err="open /run/systemd/resolve/resolv.conf: no such file or directory" pod="kube-system/kube-proxy-x"`}}
	s.Cluster = &endlessNode{oneNode{Plan: s.api, node: readyNode(corev1.ConditionTrue, ""), pods: []corev1.Pod{aPod("kube-proxy", "critical host")}}}
	err := awaitSandbox(t.Context(), s.Env)
	var failure *diagnose.Error
	if !errors.As(err, &failure) || failure.Findings[0].Cause != "pod-sandbox" {
		t.Fatalf("error %v", err)
	}
	fact.Error(t, err, "node cp-1", "/run/systemd/resolve/resolv.conf")
}

// endlessNode is looked at until the wait ends.
type endlessNode struct{ oneNode }

func (e *endlessNode) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	err := e.oneNode.AwaitNode(ctx, name, check)
	<-ctx.Done()
	return err
}
