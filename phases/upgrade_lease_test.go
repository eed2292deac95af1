// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// turnLease is the Lease of the control plane whose components are being restarted, by the name that all releases use.
func turnLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-upgrade", Namespace: metav1.NamespaceSystem},
	}
}

// holds makes a node the holder of the Lease, with its last renewal so long ago.
func (s *stage) holds(t *testing.T, name string, ago time.Duration) {
	t.Helper()
	s.holdsFor(t, name, "upgrade", ago)
}

func (s *stage) holdsFor(t *testing.T, name, purpose string, ago time.Duration) {
	t.Helper()
	lease, renewed := turnLease(), metav1.NewMicroTime(s.Host.Now().Add(-ago))
	take := func() (bool, error) {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &name, &renewed
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "slipway/purpose", purpose)
		return true, nil
	}
	found, err := s.api.Update(t.Context(), lease, take)
	if err == nil && !found {
		_, _ = take()
		err = s.api.Ensure(t.Context(), lease)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holder is that of the Lease.
func (s *stage) holder(t *testing.T) string {
	t.Helper()
	lease := turnLease()
	if _, err := s.api.Get(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// TestTakeTurn: one control plane at a time. Nobody takes the Lease of a node that is still there and changes its version, however
// long it has been silent: its API server may be what takes so long. One that does not is replaced an hour after its last
// renewal, if its clock is no explanation.
func TestTakeTurn(t *testing.T) {
	const other, hour = "cp-2", time.Hour
	for name, test := range map[string]struct {
		holder string
		what   purpose
		silent time.Duration
		renews bool       // all the while, by a clock that is late
		gone   bool       // the holder's Node
		refuse *heldError // nil if it is this node's turn
		waited time.Duration
	}{
		"free":                          {},
		"continues its own":             {holder: "cp-1", what: forUpgrade, silent: hour},
		"another is being upgraded":     {holder: other, what: forUpgrade, refuse: &heldError{holder: other}},
		"another is silent":             {holder: other, what: forUpgrade, silent: 9 * hour, refuse: &heldError{holder: other, silent: true}},
		"another is gone":               {holder: other, what: forUpgrade, gone: true},
		"a rollback is silent":          {holder: other, what: forRollback, silent: 9 * hour, refuse: &heldError{holder: other, silent: true}},
		"a renewal is silent":           {holder: other, what: forRenewal, silent: hour / 2, refuse: &heldError{holder: other, silent: true}},
		"a renewal was abandoned":       {holder: other, what: forRenewal, silent: hour, waited: leaseSilence},
		"a preparation was abandoned":   {holder: other, what: forPreparation, silent: hour, waited: leaseSilence},
		"a renewal with a clock of old": {holder: other, what: forRenewal, silent: 9 * hour, renews: true, refuse: &heldError{holder: other, silent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.host.Has.Time = time.Now()
			s.Config.Timeouts.UpgradeManifests = 90 * time.Second
			if !test.gone {
				if err := s.api.Ensure(t.Context(), cluster.NewNode(other)); err != nil {
					t.Fatal(err)
				}
			}
			if test.holder != "" {
				s.holdsFor(t, test.holder, string(test.what), test.silent)
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if test.renews {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					go func() {
						for ctx.Err() == nil {
							s.holdsFor(t, test.holder, string(test.what), test.silent-time.Since(began))
							select {
							case <-ctx.Done():
							case <-time.After(leaseRenewal):
							}
						}
					}()
				}
				mine, err := takeTurn(t.Context(), s.Env, forUpgrade)
				if test.refuse != nil {
					held := (*heldError)(nil)
					if !errors.As(err, &held) || held.holder != test.refuse.holder || held.silent != test.refuse.silent || s.holder(t) != other {
						t.Errorf("error %v, holder %s", err, s.holder(t))
					}
					fact.Error(t, err, "control plane "+other)
					if waited := time.Since(began); waited != s.Config.Timeouts.UpgradeManifests {
						t.Errorf("waited %s", waited)
					}
					s.saidOnce(t, line{"[WARNING]", "1m30s", "control plane " + other})
					return
				}
				if waited := time.Since(began).Truncate(leaseSilence); err != nil || s.holder(t) != "cp-1" || waited != test.waited {
					t.Fatalf("error %v, holder %q after %s", err, s.holder(t), waited)
				}
				if mine.continued != (test.holder == "cp-1") {
					t.Errorf("continued: %t", mine.continued)
				}
				if err := mine.giveBack(t.Context()); err != nil || s.holder(t) != "" {
					t.Errorf("afterwards: error %v, holder %q", err, s.holder(t))
				}
			})
		})
	}
}

// secondControlPlane is the environment of cp-2 in the cluster in which s is cp-1.
func secondControlPlane(t *testing.T, s *stage) *Env {
	t.Helper()
	for _, other := range []string{"cp-1", "cp-2"} {
		if err := s.api.Ensure(t.Context(), cluster.NewNode(other)); err != nil {
			t.Fatal(err)
		}
	}
	second, other := *s.Env, *s.Config
	other.Name, second.Config = "cp-2", &other
	return &second
}

// TestWaitsForTurn: the Lease passes on once its holder has given it back, and its holder keeps renewing it.
func TestWaitsForTurn(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.host.Has.Time = time.Now()
	s.Config.Timeouts.UpgradeManifests = time.Minute
	second := secondControlPlane(t, s)
	synctest.Test(t, func(t *testing.T) {
		mine, err := takeTurn(t.Context(), s.Env, forUpgrade)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			next, err := takeTurn(t.Context(), second, forUpgrade)
			if err == nil {
				err = next.giveBack(t.Context())
			}
			ended <- err
		}()
		s.holds(t, "cp-1", time.Hour)
		time.Sleep(3 * leaseRenewal)
		lease := newUpgradeLease()
		if _, err := s.api.Get(t.Context(), lease); err != nil || holderOf(lease) != "cp-1" || s.Host.Now().Sub(lease.Spec.RenewTime.Time) > time.Second {
			t.Errorf("error %v, %v", err, lease.Spec)
		}
		if err := mine.giveBack(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil || s.holder(t) != "" {
			t.Errorf("the second: %v, holder %q", err, s.holder(t))
		}
	})
}

// TestDeletedLease: once the Lease is deleted, one of those that wait becomes its holder, and no other.
func TestDeletedLease(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	second := secondControlPlane(t, s)
	s.holds(t, "cp-3", 0)
	if err := s.api.EnsureAbsent(t.Context(), newUpgradeLease()); err != nil {
		t.Fatal(err)
	}
	if _, err := hold(t.Context(), s.Env, forUpgrade, nil); err != nil || s.holder(t) != "cp-1" {
		t.Errorf("the first: %v, holder %q", err, s.holder(t))
	}
	held := (*heldError)(nil)
	if _, err := hold(t.Context(), second, forUpgrade, nil); !errors.As(err, &held) || s.holder(t) != "cp-1" {
		t.Errorf("the second: %v, holder %q", err, s.holder(t))
	}
}

// listed is a cluster with these nodes.
type listed struct {
	cluster.Cluster
	nodes []corev1.Node
}

func (l listed) Nodes(context.Context) ([]corev1.Node, error) { return l.nodes, nil }

// TestTurnAfterRefusal: a run that has replaced nothing gives the Lease back, unless an earlier run may have.
func TestTurnAfterRefusal(t *testing.T) {
	for name, earlier := range map[string]string{"at first": "", "continued": "cp-1"} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			s.host.Jobs = nil
			s.runsPods(nil, nil)
			s.Etcd = &members{list: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: ownPeer}}}
			s.Config.Timeouts.KubeletHealthCheck = 10 * time.Millisecond
			other := cluster.NewNode("cp-2")
			other.Labels = map[string]string{cluster.LabelControlPlane: ""}
			s.Cluster = listed{s.api, []corev1.Node{*other}}
			if earlier != "" {
				s.holds(t, earlier, time.Hour)
			}
			err := runUpgradeControlPlane(t.Context(), s.Env)
			fact.Error(t, err, "node cp-2", "not Ready")
			if s.holder(t) != earlier {
				t.Errorf("holder %q, want %q", s.holder(t), earlier)
			}
			if changed := s.host.Jobs; len(changed) > 0 {
				t.Errorf("did %q", changed)
			}
		})
	}
}
