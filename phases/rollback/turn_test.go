// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRollbackKeepsLease: a failed or interrupted rollback keeps the Lease if it, or perhaps an earlier run, stopped something.
func TestRollbackKeepsLease(t *testing.T) {
	sick := func(s *phasetest.Stage) {
		s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return errors.New("connection refused") }
	}
	for name, row := range map[string]struct {
		sets    func(*phasetest.Stage)
		restore *restore
		changes bool // etcd's static Pod
		cancel  bool // before anything
		earlier bool // an earlier run has the Lease
		keeps   bool
	}{
		"no snapshot to restore":                       {restore: &restore{snapshot: "/none", replacement: node.EtcdDataReplacement{NewData: "/var/lib/etcd/member.new"}}},
		"no snapshot, and an earlier run has the turn": {restore: &restore{snapshot: "/none", replacement: node.EtcdDataReplacement{NewData: "/var/lib/etcd/member.new"}}, earlier: true, keeps: true},
		"no snapshot, and an earlier run stopped etcd": {restore: &restore{snapshot: "/none", replacement: node.EtcdDataReplacement{NewData: "/var/lib/etcd/member.new"}, begun: true}, keeps: true},
		"no snapshot, and nobody knows of an earlier run": {sets: func(s *phasetest.Stage) {
			s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Away: func() bool { return true }}
		}, restore: &restore{snapshot: "/none", replacement: node.EtcdDataReplacement{NewData: "/var/lib/etcd/member.new"}}, earlier: true, keeps: true},
		"no runtime to ask":                       {sets: func(s *phasetest.Stage) { s.FakeHost.Fail["Containers"] = errors.New("no runtime") }, changes: true},
		"nothing to put back, and a sick kubelet": {sets: sick, keeps: true},
		"a component that does not come up":       {sets: sick, changes: true, keeps: true},
		"a kubelet that does not start": {sets: func(s *phasetest.Stage) {
			s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
			s.FakeHost.Fail["restart kubelet.service"] = errors.New("exit code 1")
		}, keeps: true},
		"interrupted before it stops anything": {changes: true, cancel: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.Config.Timeouts.UpgradeManifests = 50 * time.Millisecond
			s.Config.Timeouts.KubeletHealthCheck = 50 * time.Millisecond
			s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			if row.sets != nil {
				row.sets(s)
			}
			if row.earlier {
				s.HoldsFor(t, "cp-1", string(node.ForRollback), time.Minute)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.cancel {
				s.FakeHost.On.Probe = func(context.Context, host.Probe) error { cancel(); return nil }
			}
			before, wanted := s.Patched(t)
			r := &Rollback{Options: Options{Backup: &upgrading.Backup{}}, restore: row.restore, before: map[string][]byte{}}
			r.before[manifests.EtcdName] = before
			if row.changes {
				r.before[manifests.EtcdName] = wanted
			}
			if err := r.putBackControlPlane(ctx, s.Env); err == nil {
				t.Error("no error")
			}
			if kept := s.Holder(t) == "cp-1"; kept != row.keeps {
				t.Errorf("the Lease has %q; did %s", s.Holder(t), strings.Join(s.FakeHost.Orders(), ", "))
			}
		})
	}
}
