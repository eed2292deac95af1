// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestTakeTurn: only one control plane at a time. Nobody takes the Lease of an existing node that changes its version, however
// long it's silent: it may be waiting for its API server. Others are replaced an hour after their last renewal, unless their
// clock is late.
func TestTakeTurn(t *testing.T) {
	const other, hour = "cp-2", time.Hour
	for name, test := range map[string]struct {
		holder string
		what   Purpose
		silent time.Duration
		renews bool       // all the while, with a slow clock
		gone   bool       // the holder's Node
		refuse *HeldError // nil if this node may go on
		waited time.Duration
	}{
		"free":                          {},
		"continues its own":             {holder: "cp-1", what: ForUpgrade, silent: hour},
		"another is being upgraded":     {holder: other, what: ForUpgrade, refuse: &HeldError{holder: other}},
		"another is silent":             {holder: other, what: ForUpgrade, silent: 9 * hour, refuse: &HeldError{holder: other, silent: true}},
		"another is gone":               {holder: other, what: ForUpgrade, gone: true},
		"a rollback is silent":          {holder: other, what: ForRollback, silent: 9 * hour, refuse: &HeldError{holder: other, silent: true}},
		"a renewal is silent":           {holder: other, what: ForRenewal, silent: hour / 2, refuse: &HeldError{holder: other, silent: true}},
		"a renewal was abandoned":       {holder: other, what: ForRenewal, silent: hour, waited: leaseSilence},
		"a preparation was abandoned":   {holder: other, what: ForPreparation, silent: hour, waited: leaseSilence},
		"a renewal with a clock of old": {holder: other, what: ForRenewal, silent: 9 * hour, renews: true, refuse: &HeldError{holder: other, silent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.FakeHost.Has.Time = time.Now()
			s.Config.Timeouts.UpgradeManifests = 90 * time.Second
			if !test.gone {
				if err := s.API.Ensure(t.Context(), cluster.NewNode(other)); err != nil {
					t.Fatal(err)
				}
			}
			if test.holder != "" {
				s.HoldsFor(t, test.holder, string(test.what), test.silent)
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if test.renews {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					go func() {
						for ctx.Err() == nil {
							s.HoldsFor(t, test.holder, string(test.what), test.silent-time.Since(began))
							select {
							case <-ctx.Done():
							case <-time.After(leaseRenewal):
							}
						}
					}()
				}
				mine, err := AcquireLease(t.Context(), s.Env, ForUpgrade)
				if test.refuse != nil {
					held := (*HeldError)(nil)
					if !errors.As(err, &held) || held.holder != test.refuse.holder || held.silent != test.refuse.silent || s.Holder(t) != other {
						t.Errorf("error %v, holder %s", err, s.Holder(t))
					}
					fact.Error(t, err, "control plane "+other)
					if waited := time.Since(began); waited != s.Config.Timeouts.UpgradeManifests {
						t.Errorf("waited %s", waited)
					}
					s.SaidOnce(t, phasetest.Line{"[WARNING]", "1m30s", "control plane " + other})
					return
				}
				if waited := time.Since(began).Truncate(leaseSilence); err != nil || s.Holder(t) != "cp-1" || waited != test.waited {
					t.Fatalf("error %v, holder %q after %s", err, s.Holder(t), waited)
				}
				if err := mine.Cancel(t.Context(), nil); err != nil || (s.Holder(t) == "cp-1") != (test.holder == "cp-1") {
					t.Errorf("cancelled: error %v, holder %q", err, s.Holder(t))
				}
				if err := mine.release(t.Context()); err != nil || s.Holder(t) != "" {
					t.Errorf("afterwards: error %v, holder %q", err, s.Holder(t))
				}
			})
		})
	}
}

// TestWaitsForTurn: a holder keeps renewing the Lease, and the next run gets it once it's returned.
func TestWaitsForTurn(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Time = time.Now()
	s.Config.Timeouts.UpgradeManifests = time.Minute
	second := phasetest.SecondControlPlane(t, s)
	synctest.Test(t, func(t *testing.T) {
		mine, err := AcquireLease(t.Context(), s.Env, ForUpgrade)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			next, err := AcquireLease(t.Context(), second, ForUpgrade)
			if err == nil {
				err = next.release(t.Context())
			}
			ended <- err
		}()
		s.Holds(t, "cp-1", time.Hour)
		time.Sleep(3 * leaseRenewal)
		lease := newUpgradeLease()
		if _, err := s.API.Get(t.Context(), lease); err != nil || holderOf(lease) != "cp-1" || s.Host.Now().Sub(lease.Spec.RenewTime.Time) > time.Second {
			t.Errorf("error %v, %v", err, lease.Spec)
		}
		if err := mine.release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil || s.Holder(t) != "" {
			t.Errorf("the second: %v, holder %q", err, s.Holder(t))
		}
	})
}

// TestDeletedLease: once the Lease is deleted, exactly one waiting run becomes its holder.
func TestDeletedLease(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	second := phasetest.SecondControlPlane(t, s)
	s.Holds(t, "cp-3", 0)
	if err := s.API.EnsureAbsent(t.Context(), newUpgradeLease()); err != nil {
		t.Fatal(err)
	}
	if _, err := takeLease(t.Context(), s.Env, ForUpgrade, nil); err != nil || s.Holder(t) != "cp-1" {
		t.Errorf("the first: %v, holder %q", err, s.Holder(t))
	}
	held := (*HeldError)(nil)
	if _, err := takeLease(t.Context(), second, ForUpgrade, nil); !errors.As(err, &held) || s.Holder(t) != "cp-1" {
		t.Errorf("the second: %v, holder %q", err, s.Holder(t))
	}
}

// lostAnswers is an API that writes, or not, and whose answers to the first writes are lost.
type lostAnswers struct {
	cluster.Cluster
	left   int
	writes bool
}

func (l *lostAnswers) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (found bool, err error) {
	if l.left--; l.left < 0 {
		return l.Cluster.Update(ctx, obj, change)
	}
	if l.writes {
		found, err = l.Cluster.Update(ctx, obj, change)
	}
	return found, cmp.Or(err, context.DeadlineExceeded)
}

// TestLostAnswer: a run that ends because the answer to its write of the Lease was lost leaves the Lease as it was.
func TestLostAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		before Purpose // of this node; empty without a holder
		writes bool
		holder string
	}{
		"written":                       {"", true, ""},
		"not written":                   {"", false, ""},
		"an earlier run's, written":     {ForRenewal, true, "cp-1"},
		"an earlier run's, not written": {ForUpgrade, false, "cp-1"},
		"an earlier upgrade's, written": {ForUpgrade, true, "cp-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			lease := newUpgradeLease()
			phasetest.Fatal(t, s.API.Ensure(t.Context(), lease))
			if c.before != "" {
				s.HoldsFor(t, "cp-1", string(c.before), time.Minute)
			}
			s.Cluster = &lostAnswers{Cluster: s.API, left: 1, writes: c.writes}
			_, err := AcquireLease(t.Context(), s.Env, ForConfiguration)
			if !errors.Is(err, context.DeadlineExceeded) || s.Holder(t) != c.holder {
				t.Errorf("error %v, holder %q", err, s.Holder(t))
			}
			_, err = s.API.Get(t.Context(), lease)
			if phasetest.Fatal(t, err); c.before != "" && purposeOf(lease) != c.before {
				t.Errorf("the purpose is %s", purposeOf(lease))
			}
		})
	}
}

// renewed is when the Lease was last renewed.
func renewed(t *testing.T, s *phasetest.Stage) time.Time {
	t.Helper()
	lease := newUpgradeLease()
	_, err := s.API.Get(t.Context(), lease)
	phasetest.Fatal(t, err)
	return lease.Spec.RenewTime.Time
}

// TestFailedTurn: a failed run that has stopped something keeps the Lease, but doesn't renew it any more.
func TestFailedTurn(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Time = time.Now()
	synctest.Test(t, func(t *testing.T) {
		mine, err := AcquireLease(t.Context(), s.Env, ForConfiguration)
		phasetest.Fatal(t, err)
		mine.KeepOnFailure()
		failed := errors.New("putting back failed, too")
		if err := mine.Release(t.Context(), s.Env, failed); !errors.Is(err, failed) {
			t.Errorf("error %v", err)
		}
		last := renewed(t, s)
		s.FakeHost.Has.Time = last.Add(leaseAbandoned)
		time.Sleep(3 * leaseRenewal)
		if now := renewed(t, s); !now.Equal(last) || s.Holder(t) != "cp-1" {
			t.Errorf("%q holds the Lease, renewed at %s after %s", s.Holder(t), now, last)
		}
	})
}

// TestInterruptedTurnExpires: runs that try to end an interrupted run's turn, and fail, don't make it last longer. A success ends it.
func TestInterruptedTurnExpires(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Time = time.Now()
	s.HoldsFor(t, "cp-1", string(ForConfiguration), leaseAbandoned/2)
	last, failed := renewed(t, s), errors.New("not ready")
	err := ReleaseInterruptedLease(t.Context(), s.Env, ForConfiguration, func(context.Context, *step.Env) error { return failed })
	if now := renewed(t, s); !errors.Is(err, failed) || !now.Equal(last) {
		t.Errorf("error %v, renewed at %s after %s", err, now, last)
	}
	mine, err := ResumeLease(t.Context(), s.Env, ForConfiguration)
	phasetest.Fatal(t, err)
	mine.KeepOnFailure()
	if err, now := mine.Release(t.Context(), s.Env, failed), renewed(t, s); !errors.Is(err, failed) || !now.Equal(last) || !mine.Held {
		t.Errorf("error %v, renewed at %s after %s", err, now, last)
	}
	if err := ReleaseInterruptedLease(t.Context(), s.Env, ForConfiguration); err != nil || s.Holder(t) != "" {
		t.Errorf("error %v, %q holds the Lease", err, s.Holder(t))
	}
}

// TestResumedTurn: a try to put this node back renews a Lease that others may take, and takes one that others have returned. It returns
// either once it fails, even if it has stopped something.
func TestResumedTurn(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *phasetest.Stage){
		"abandoned": func(t *testing.T, s *phasetest.Stage) {
			s.HoldsFor(t, "cp-1", string(ForConfiguration), leaseAbandoned)
		},
		"returned": func(*testing.T, *phasetest.Stage) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.FakeHost.Has.Time = time.Now()
			prepare(t, s)
			synctest.Test(t, func(t *testing.T) {
				mine, err := ResumeLease(t.Context(), s.Env, ForConfiguration)
				phasetest.Fatal(t, err)
				if age := s.Host.Now().Sub(renewed(t, s)); s.Holder(t) != "cp-1" || age >= leaseSilence {
					t.Errorf("%q holds the Lease, renewed %s ago", s.Holder(t), age)
				}
				mine.KeepOnFailure()
				failed := errors.New("not ready")
				if err := mine.Release(t.Context(), s.Env, failed); !errors.Is(err, failed) || s.Holder(t) != "" {
					t.Errorf("error %v, %q holds the Lease", err, s.Holder(t))
				}
			})
		})
	}
}
