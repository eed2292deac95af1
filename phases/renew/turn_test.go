// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestSignerInTurn: the kubelet restarts a controller manager when its static Pod changes. So that changes along with the restart
// of the components, while this control plane has the Lease; a renewal without --restart only gives advice.
func TestSignerInTurn(t *testing.T) {
	const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	s := phasetest.RestartStage(t, bootstrap.Init())
	old, next := twoCAs(t, s)
	s.PutCA(t, old, next)
	before := s.Get(t, manager)
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, Certificates(Options{}), step.Options{}))
	s.SaidOnce(t, phasetest.Line{manager, "--cluster-signing-cert-file=" + phasetest.PKIDir + manifests.SignerFile, "--restart"})
	if s.Get(t, manager) != before || s.Holder(t) != "" {
		t.Errorf("without --restart, %s was changed: %q", manager, s.FakeHost.Orders())
	}

	phasetest.SecondControlPlane(t, s)
	s.Holds(t, "cp-2", 0)
	s.Config.Timeouts.UpgradeManifests = 50 * time.Millisecond
	fact.Error(t, renews(t, s), "control plane cp-2")
	if s.Get(t, manager) != before {
		t.Errorf("%s was changed while cp-2 has the Lease", manager)
	}

	phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), phasetest.TurnLease()))
	s.FakeHost.Before = func(_ context.Context, order string) error {
		if order == "write "+manager && s.Holder(t) != "cp-1" {
			t.Errorf("%s: the Lease has %q", order, s.Holder(t))
		}
		return nil
	}
	s.Config.Timeouts.UpgradeManifests = time.Minute
	phasetest.Fatal(t, renews(t, s))
	if after := s.Get(t, manager); after == before || s.Holder(t) != "" || !slices.Contains(s.FakeHost.Did("stop container"), manifests.ControllerManagerName) {
		t.Errorf("the Lease has %q; did %q", s.Holder(t), s.FakeHost.Orders())
	}
}

// TestRenewInTurn: a renewal with something to restart takes the Lease, and gives it back unless an upgrade had it before. If the
// run can't get it, it fails with advice; the certificates are renewed.
func TestRenewInTurn(t *testing.T) {
	for name, row := range map[string]struct {
		holder string // of the Lease before
		what   string // its purpose
		sick   bool   // no component comes up
		stops  string
		says   []string
		left   string // the holder afterwards, and its purpose
	}{
		"free":                         {stops: "kube-scheduler"},
		"another is upgraded":          {holder: "cp-2", what: "upgrade", says: []string{"control plane cp-2"}, left: "cp-2 upgrade"},
		"its own unfinished upgrade":   {holder: "cp-1", what: "upgrade", stops: "kube-scheduler", left: "cp-1 upgrade"},
		"its own interrupted renewal":  {holder: "cp-1", what: "renewal", stops: "kube-scheduler"},
		"its own interrupted prepare":  {holder: "cp-1", what: "preparation", stops: "kube-scheduler"},
		"it does not come up":          {sick: true, stops: "kube-scheduler", says: []string{manifests.SchedulerName}, left: "cp-1 renewal"},
		"a holder that is gone":        {holder: "cp-9", what: "upgrade", stops: "kube-scheduler"},
		"another renews, and is stuck": {holder: "cp-2", what: "renewal", says: []string{"control plane cp-2"}, left: "cp-2 renewal"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.FakeHost.Runs(time.Time{}, manifests.SchedulerName)
			phasetest.SecondControlPlane(t, s)
			if row.holder != "" {
				s.HoldsFor(t, row.holder, row.what, time.Hour)
			}
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.ControlPlaneComponentHealthCheck = 50*time.Millisecond, 50*time.Millisecond
			if row.sick {
				s.FakeHost.On.Probe = func(_ context.Context, p host.Probe) error {
					if strings.Contains(p.URL, ":10259") {
						return errors.New("connection refused")
					}
					return nil
				}
			}
			before := s.Get(t, "/etc/kubernetes/scheduler.conf")
			err := step.Run(t.Context(), s.Env, Certificates(Options{Name: "scheduler.conf", Restart: true}), step.Options{})
			fact.Error(t, err, row.says...)
			if held := (*node.HeldError)(nil); row.holder == "cp-2" && !errors.As(err, &held) {
				t.Errorf("error %v", err)
			}
			if s.Get(t, "/etc/kubernetes/scheduler.conf") == before {
				t.Error("the certificate was not renewed")
			}
			if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != row.stops {
				t.Errorf("stopped %q, want %q", got, row.stops)
			}
			if left := strings.TrimSpace(s.Holder(t) + " " + s.PurposeNow(t)); left != row.left {
				t.Errorf("the Lease says %q, want %q", left, row.left)
			}
		})
	}
}

// TestNoTurnForNothing: a renewal with nothing to restart, as on most days, asks nothing of the API.
func TestNoTurnForNothing(t *testing.T) {
	s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
	s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
	s.Done = nil
	s.Play(t, Certificates(Options{Within: time.Hour, Restart: true})...)
	if len(s.Done) > 0 || len(s.FakeHost.Did("stop container")) > 0 {
		t.Errorf("asked for %q, did %q", s.Done, s.FakeHost.Orders())
	}
}

func TestTurnOfInterruptedRenewal(t *testing.T) {
	phasetest.TurnOfInterruptedRun(t, bootstrap.Init(), string(node.ForRenewal), func(s *phasetest.Stage) error { return restartChanged(t.Context(), s.Env) })
}

// TestRenewWithoutAPI: certificates may be renewed because they've expired, and then the API may not answer. An API server nobody
// can use restarts first, and then the Lease can be taken. If no other etcd member works, nobody needs it.
func TestRenewWithoutAPI(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		etcd  phasetest.Voters
		alone bool
		comes bool // the API server answers after a restart
		works bool // it's healthy, but this host has no credentials for it
		stops string
		held  bool // the Lease, when etcd stops
		fails bool
	}{
		"alone":                              {alone: true, comes: true, stops: "kube-apiserver etcd"},
		"three":                              {comes: true, stops: "kube-apiserver kube-apiserver etcd", held: true},
		"three, and it does not come up":     {stops: "kube-apiserver", fails: true},
		"three, and no admin.conf":           {works: true, stops: "kube-apiserver etcd"},
		"three, and none of them has a lead": {etcd: phasetest.Voters{Own: down, Cp2: down, Cp3: down, Leaderless: true}, comes: true, stops: "kube-apiserver etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
			s.FakeHost.Runs(time.Time{}, manifests.APIServerName)
			if known := row.etcd; !row.alone {
				s.Etcd = &known
			}
			s.Config.Timeouts.ControlPlaneComponentHealthCheck = 50 * time.Millisecond
			away, held := true, false
			s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Away: func() bool { return away }}
			s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				if id == manifests.EtcdName {
					held = s.Holder(t) == "cp-1"
				} else {
					away = !row.comes
				}
				s.FakeHost.Runs(time.Now().Add(2*time.Hour), id)
				return nil
			}
			s.FakeHost.On.Probe = func(_ context.Context, p host.Probe) error {
				if strings.Contains(p.URL, ":6443") && away && !row.works {
					return down
				}
				return nil
			}
			err := step.Run(t.Context(), s.Env, Certificates(Options{Name: "etcd-server", Restart: true}), step.Options{})
			if (err != nil) != row.fails {
				t.Errorf("error %v", err)
			}
			stopped := slices.DeleteFunc(s.FakeHost.Did("stop container"), func(id string) bool {
				return id != manifests.EtcdName && id != manifests.APIServerName
			})
			if got := strings.Join(stopped, " "); got != row.stops || held != row.held {
				t.Errorf("stopped %q, want %q; the Lease was held: %t", got, row.stops, held)
			}
			if holder := s.Holder(t); holder != "" {
				t.Errorf("%s keeps the Lease", holder)
			}
		})
	}
}
