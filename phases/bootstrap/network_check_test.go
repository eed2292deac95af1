// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

type judge struct {
	*cluster.Plan
	of    map[string]cluster.Verdict // by the object's name
	there string                     // the name of an object the API has in another form
	err   error
}

func (j judge) Compare(ctx context.Context, obj cluster.Object) (cluster.Difference, error) {
	if j.there != "" && obj.GetName() == j.there {
		return cluster.Difference{Change: cluster.Update}, nil
	}
	return j.Plan.Compare(ctx, obj)
}

func (j judge) Validate(_ context.Context, objs ...cluster.Object) ([]cluster.Verdict, error) {
	var all []cluster.Verdict
	for _, obj := range objs {
		all = append(all, j.of[obj.GetName()])
	}
	return all, j.err
}

const netManifest = `apiVersion: v1
kind: Namespace
metadata: {name: net}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: net}
spec:
  template: {}
`

func withPodNetwork(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	flags := config.InitFlags{Given: []string{"network"}, NetworkAddOn: "net.yaml", NetworkManifest: []byte(netManifest)}
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "a.yaml", Data: []byte(fixture.InitDocument)}, flags, config.Options{
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Config.NetworkAddOn = n.NetworkAddOn
}

// afterTheWait returns init's phases from the moment the control plane is healthy.
func afterTheWait(t *testing.T) []step.Phase {
	t.Helper()
	all := Init()
	at := slices.IndexFunc(all, func(p step.Phase) bool { return p.Name == "wait-control-plane" })
	wait := &all[at]
	wait.Needs = nil
	wait.Children = slices.DeleteFunc(wait.Children, func(p step.Phase) bool { return p.Name != "network" })
	for i := range wait.Children {
		wait.Children[i].Needs = nil
	}
	return all[at:]
}

// TestNetworkIsRefused: init ends before it creates anything else, and says where in the file the API sees a fault.
func TestNetworkIsRefused(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	withPodNetwork(t, s)
	s.Cluster = judge{Plan: s.API, of: map[string]cluster.Verdict{"agent": {Refusals: []cluster.Refusal{
		{Field: "spec.template.spec.containers", Message: "Required value"}, {Field: "spec.selector", Message: "Required value"},
	}}}}
	err := step.Run(t.Context(), s.Env, afterTheWait(t), step.Options{})
	fact.Error(t, err, "net.yaml:9: DaemonSet net/agent: spec.template.spec.containers: Required value", "net.yaml:8: DaemonSet net/agent: spec.selector: Required value")
	fact.In(t, fault.Remedy(err), "net.yaml")
	if diff := cmp.Diff([]string{"ensure ClusterRoleBinding kubeadm:cluster-admins"}, s.Done); diff != "" {
		t.Errorf("done, -want +got:\n%s", diff)
	}
}

// TestNetworkThatStays: a second init leaves existing objects alone, so it doesn't matter whether the API would accept the file's
// version.
func TestNetworkThatStays(t *testing.T) {
	refused := map[string]cluster.Verdict{"agent": {Refusals: []cluster.Refusal{{Field: "spec.selector", Message: "field is immutable"}}}}
	for there, works := range map[string]bool{"agent": true, "net": false} {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		withPodNetwork(t, s)
		s.Rerun, s.Cluster = true, judge{Plan: s.API, of: refused, there: there}
		err := step.Run(t.Context(), s.Env, []step.Phase{addon.Network()}, step.Options{})
		if !works {
			fact.Error(t, err, "net.yaml", "DaemonSet net/agent")
			continue
		}
		fact.Error(t, err)
		if !slices.Contains(s.Done, "ensure Namespace net") || slices.Contains(s.Done, "ensure DaemonSet agent") {
			t.Errorf("done: %q", s.Done)
		}
	}
}

// TestNetworkIsTaken, as far as the API can tell; the output names the objects it can't judge.
func TestNetworkIsTaken(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	withPodNetwork(t, s)
	s.Cluster = judge{Plan: s.API, of: map[string]cluster.Verdict{"agent": {UnknownReason: "namespace missing"}}}
	s.Play(t, addon.Network())
	fact.In(t, s.Said.String(), "DaemonSet net/agent", "namespace missing")
	if !slices.Contains(s.Done, "ensure DaemonSet agent") {
		t.Errorf("done: %q", s.Done)
	}
}

// TestNetworkCannotBeChecked: a plan warns about it; a run treats it as no approval.
func TestNetworkCannotBeChecked(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	withPodNetwork(t, s)
	s.Play(t, addon.Network())
	fact.In(t, s.Said.String(), "[WARNING]", "net.yaml")
	s.Done, s.Cluster = nil, judge{Plan: s.API, err: errors.New("connection refused")}
	fact.Error(t, step.Run(t.Context(), s.Env, []step.Phase{addon.Network()}, step.Options{}), "connection refused")
	if slices.Contains(s.Done, "ensure DaemonSet agent") {
		t.Errorf("done: %q", s.Done)
	}
}
