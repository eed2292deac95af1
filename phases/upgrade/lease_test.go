// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// listed is a cluster with fixed nodes.
type listed struct {
	cluster.Cluster
	nodes []corev1.Node
}

func (l listed) Nodes(context.Context) ([]corev1.Node, error) { return l.nodes, nil }

// unheard is a cluster whose first answer to each write is lost, so the client tries again.
type unheard struct{ listed }

func (u unheard) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	if found, err := u.Cluster.Update(ctx, obj, change); err != nil || !found {
		return found, err
	}
	return u.Cluster.Update(ctx, obj, change)
}

// TestTurnAfterRefusal: a run that has replaced nothing returns the Lease, unless an earlier run may have replaced something. That
// run's Lease still ends as it would have ended without this one.
func TestTurnAfterRefusal(t *testing.T) {
	for name, row := range map[string]struct {
		earlier string // its purpose
		lost    bool
	}{
		"at first":                  {},
		"at first, an answer lost":  {lost: true},
		"continued":                 {earlier: "upgrade"},
		"continued, an answer lost": {earlier: "upgrade", lost: true},
		"a failed renewal":          {earlier: "renewal"},
		"a renewal, an answer lost": {earlier: "renewal", lost: true},
		"a rollback":                {earlier: "rollback"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.FakeHost.Jobs = nil
			s.RunsPods(nil, nil)
			s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
			s.Config.Timeouts.KubeletHealthCheck = 10 * time.Millisecond
			other := cluster.NewNode("cp-2")
			other.Labels = map[string]string{cluster.LabelControlPlane: ""}
			api, holder := listed{s.API, []corev1.Node{*other}}, ""
			if s.Cluster = api; row.lost {
				s.Cluster = unheard{api}
			}
			if row.earlier != "" {
				holder = "cp-1"
				s.HoldsFor(t, holder, row.earlier, time.Hour)
			}
			err := runUpgradeControlPlane(t.Context(), s.Env)
			fact.Error(t, err, "node cp-2", "not Ready")
			if s.Holder(t) != holder || s.PurposeNow(t) != row.earlier {
				t.Errorf("holder %q for %q, want %q for %q", s.Holder(t), s.PurposeNow(t), holder, row.earlier)
			}
			if changed := s.FakeHost.Jobs; len(changed) > 0 {
				t.Errorf("did %q", changed)
			}
		})
	}
}

// TestUnfinishedChangeStopsPhases: a phase that's run alone, without preflight, leaves files alone that a change may put back.
func TestUnfinishedChangeStopsPhases(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.FakeHost.Jobs = nil
	_, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", nil, trial.Record{})
	phasetest.Fatal(t, err)
	before := len(s.Done)
	for _, run := range []func(context.Context, *step.Env) error{runUpgradeControlPlane, runUpgradeKubeletConfig} {
		err := run(t.Context(), s.Env)
		fact.Error(t, err, string(trial.OnTrial))
		fact.In(t, fault.Remedy(err), "`slipway reconfigure node`")
	}
	if len(s.Done) > before || s.Holder(t) != "" {
		t.Errorf("did %q, the Lease is held by %q", s.Done[before:], s.Holder(t))
	}
	s.Config.IgnorePreflightErrors = []string{fault.UnfinishedChange}
	phasetest.Fatal(t, s.Host.EnsureDir("/var/lib/kubelet", 0o755))
	phasetest.Fatal(t, runUpgradeKubeletConfig(t.Context(), s.Env))
}

// TestLeaseOfTwoVersions: a node whose components run two versions keeps the Lease, even if the last ones were put back.
func TestLeaseOfTwoVersions(t *testing.T) {
	for name, partly := range map[string]bool{"as before": false, "two versions": true} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.RunsPods(nil, nil)
			s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
			s.Config.Timeouts.KubeletHealthCheck = 10 * time.Millisecond
			mine, err := node.AcquireLease(t.Context(), s.Env, node.ForUpgrade)
			phasetest.Fatal(t, err)
			mine.KeepOnFailure()
			failed := node.NewRolledBackError(errors.New("no answer"))
			back := (*node.RolledBackError)(nil)
			errors.As(failed, &back)
			back.Partly = partly
			if err := mine.Release(t.Context(), s.Env, failed); !errors.Is(err, failed) {
				t.Error(err)
			}
			if kept := s.Holder(t) != ""; kept != partly {
				t.Errorf("the Lease is kept: %t", kept)
			}
		})
	}
}
