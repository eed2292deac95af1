// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestAwaitSandbox(t *testing.T) {
	proxy := []corev1.Pod{phasetest.APod("kube-proxy", "critical host")}
	for name, tt := range map[string]struct {
		pods   []corev1.Pod
		has    []host.Sandbox
		passes time.Duration // after the first look
		warns  phasetest.Line
	}{
		"one runs":                           {proxy, []host.Sandbox{{Pod: "kube-proxy", Ready: true}}, 0, nil},
		"one has ended":                      {proxy, []host.Sandbox{{Pod: "kube-proxy"}}, 0, phasetest.Line{"[WARNING]", "node cp-1", "Pod kube-system/kube-proxy"}},
		"none yet":                           {proxy, nil, 0, phasetest.Line{"[WARNING]", "node cp-1", "Pod kube-system/kube-proxy"}},
		"the cluster gives none":             {nil, nil, firstPodTimeout, nil},
		"the cluster gives none yet":         {nil, nil, 0, phasetest.Line{"[WARNING]", "node cp-1", "not given"}},
		"static Pods and those of a network": {[]corev1.Pod{phasetest.APod("etcd", "static critical host"), phasetest.APod("coredns", "")}, nil, firstPodTimeout, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.FakeHost.Has.Sandboxes, s.FakeHost.Has.Time = tt.has, time.Now()
			s.Cluster = &phasetest.OneNode{Plan: s.API, Node: phasetest.ReadyNode(corev1.ConditionTrue, ""), Running: tt.pods, Passes: func() { s.FakeHost.Pass(tt.passes) }}
			phasetest.Fatal(t, awaitSandbox(t.Context(), s.Env))
			if tt.warns == nil {
				fact.NotIn(t, s.Said.String(), "[WARNING]")
			} else {
				s.SaidOnce(t, tt.warns)
			}
		})
	}
}

// TestJoinNamesSandboxFailure: a node whose Pods can't start is an error within seconds, with the reason.
func TestJoinNamesSandboxFailure(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Sandboxes = nil
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", SubState: "running"}
	s.FakeHost.Has.Journal = []host.JournalEntry{{Time: time.Now(), Program: "kubelet",
		Message: `E1121 "Failed to generate sandbox config for pod" err="open /run/systemd/resolve/resolv.conf: no such file or directory" pod="kube-system/kube-proxy-x"`}}
	s.Cluster = &endlessNode{phasetest.OneNode{Plan: s.API, Node: phasetest.ReadyNode(corev1.ConditionTrue, ""), Running: []corev1.Pod{phasetest.APod("kube-proxy", "critical host")}}}
	err := awaitSandbox(t.Context(), s.Env)
	var failure *diagnose.Error
	if !errors.As(err, &failure) || failure.Findings[0].Name != "pod-sandbox" {
		t.Fatalf("error %v", err)
	}
	fact.Error(t, err, "node cp-1", "/run/systemd/resolve/resolv.conf")
}

type endlessNode struct{ phasetest.OneNode }

func (e *endlessNode) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	err := e.OneNode.AwaitNode(ctx, name, check)
	<-ctx.Done()
	return err
}
