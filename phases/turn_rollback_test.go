// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
)

// TestRollbackKeepsLease: a rollback that fails, or is interrupted, keeps the Lease if it has stopped something, or an earlier run
// may have. Otherwise another control plane may go on.
func TestRollbackKeepsLease(t *testing.T) {
	sick := func(s *stage) {
		s.host.On.Probe = func(context.Context, host.Probe) error { return errors.New("connection refused") }
	}
	for name, row := range map[string]struct {
		sets    func(*stage)
		restore *restore
		changes bool // etcd's static Pod
		cancel  bool // before anything
		earlier bool // an earlier run has the Lease
		keeps   bool
	}{
		"no snapshot to restore":                       {restore: &restore{snapshot: "/none", fresh: "/var/lib/etcd/member.new"}},
		"no snapshot, and an earlier run has the turn": {restore: &restore{snapshot: "/none", fresh: "/var/lib/etcd/member.new"}, earlier: true, keeps: true},
		"no snapshot, and an earlier run stopped etcd": {restore: &restore{snapshot: "/none", fresh: "/var/lib/etcd/member.new", begun: true}, keeps: true},
		"no snapshot, and nobody knows of an earlier run": {sets: func(s *stage) {
			s.Cluster = turnsAPI{Cluster: s.api, away: func() bool { return true }}
		}, restore: &restore{snapshot: "/none", fresh: "/var/lib/etcd/member.new"}, earlier: true, keeps: true},
		"no runtime to ask":                         {sets: func(s *stage) { s.host.Fail["Containers"] = errors.New("no runtime") }, changes: true},
		"nothing to put back, and a sick component": {sets: sick},
		"a component that does not come up":         {sets: sick, changes: true, keeps: true},
		"a kubelet that does not start": {sets: func(s *stage) {
			s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
			s.host.Fail["restart kubelet.service"] = errors.New("exit code 1")
		}, keeps: true},
		"interrupted before it stops anything": {changes: true, cancel: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t, Init())
			s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.Config.Timeouts.UpgradeManifests = 50 * time.Millisecond
			s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			if row.sets != nil {
				row.sets(s)
			}
			if row.earlier {
				s.holdsFor(t, "cp-1", string(forRollback), time.Minute)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.cancel {
				s.host.On.Probe = func(context.Context, host.Probe) error { cancel(); return nil }
			}
			before, wanted := s.patched(t)
			r := &Rollback{RollbackOptions: RollbackOptions{Backup: &upgrading.Backup{}}, restore: row.restore, before: map[string][]byte{}}
			r.before[manifests.EtcdName] = before
			if row.changes {
				r.before[manifests.EtcdName] = wanted
			}
			if err := r.putBackControlPlane(ctx, s.Env); err == nil {
				t.Error("no error")
			}
			if kept := s.holder(t) == "cp-1"; kept != row.keeps {
				t.Errorf("the Lease has %q; did %s", s.holder(t), strings.Join(s.host.Orders(), ", "))
			}
		})
	}
}
