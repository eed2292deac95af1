// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestPruneData: only data that a replacement has set aside goes, and only while nobody may need it.
func TestPruneData(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *phasetest.Stage, *members)
		facts  []string // of the error
	}{
		"all is well": {func(*testing.T, *phasetest.Stage, *members) {}, nil},
		"etcd doesn't work": {func(_ *testing.T, _ *phasetest.Stage, m *members) { m.health[0].Err = errors.New("no leader") },
			[]string{"no leader"}},
		"etcd doesn't answer": {func(_ *testing.T, _ *phasetest.Stage, m *members) {
			m.Fail = map[string]error{"health": errors.New("192.0.2.11: connection refused")}
		}, []string{"192.0.2.11"}},
		"etcd runs with other data": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			s.Put(t, phasetest.EtcdLog, phasetest.LogOf(1, 0xdef, true))
		}, []string{"abc", "def"}},
		"etcd has no data in place": {func(t *testing.T, s *phasetest.Stage, _ *members) { s.Remove(t, phasetest.EtcdLog) }, []string{"abc", "0"}},
		"an unfinished rollback": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			phasetest.Fatal(t, s.Host.EnsureDir(node.BackupRoot(s.Env), 0o700))
			phasetest.Fatal(t, upgrading.Progress{OldData: "/x"}.Write(s.Host, node.BackupRoot(s.Env)))
		}, []string{"`slipway upgrade rollback --restore-etcd`"}},
		"a rollback that has ended": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			phasetest.Fatal(t, s.Host.EnsureDir(node.BackupRoot(s.Env), 0o700))
			phasetest.Fatal(t, upgrading.Progress{OldData: "/x", Finished: noon}.Write(s.Host, node.BackupRoot(s.Env)))
		}, nil},
		"a broken journal": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			s.Put(t, node.EtcdJournalPath(s.Config.Paths), "command: [")
		}, []string{"/etc/kubernetes/tmp/slipway-etcd-data.yaml"}},
		"an unfinished restore": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			phasetest.Fatal(t, node.EtcdJournal{Command: restoreCommand, From: "/a.db", OldData: "/x"}.Write(s.Env))
		}, []string{"`slipway etcd restore /a.db`"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, _ := alone(t)
			for _, dir := range []string{"member.before-restore-2026-11-27-12-00-00", "member.before-rollback-2026-11-27-12-00-00", "member.new",
				".member.new.slipway-ABCDEFGH", "member.before-restore-mine", "member.before-2026-11-27-12-00-00", "memory"} {
				s.Put(t, "/var/lib/etcd/"+dir+"/snap/db", "data")
			}
			s.Put(t, phasetest.EtcdLog, phasetest.LogOf(1, 0xabc, true))
			c.change(t, s, m)
			p, err := NewPruneData(t.Context(), s.Env)
			if fact.Error(t, err, c.facts...); err != nil {
				return
			}
			fact.In(t, p.Summary(), "/var/lib/etcd/member.before-restore-2026-11-27-12-00-00", "/var/lib/etcd/member.before-rollback-2026-11-27-12-00-00")
			s.Play(t, p.Phases()...)
			left := []string{"member", "member.before-2026-11-27-12-00-00", "member.before-restore-mine", "memory"}
			if diff := cmp.Diff(left, fixture.Entries(t, s.Root+"/var/lib/etcd")); diff != "" {
				t.Errorf("(-want +left):\n%s", diff)
			}
			p, err = NewPruneData(t.Context(), s.Env)
			phasetest.Fatal(t, err)
			if p.Summary() != "" {
				t.Errorf("asks again: %s", p.Summary())
			}
			s.Play(t, p.Phases()...)
		})
	}
}

// TestPruneDataLooksAgain: etcd's old data stays if its present data fails while the operator thinks.
func TestPruneDataLooksAgain(t *testing.T) {
	const old = "/var/lib/etcd/member.before-restore-2026-11-27-12-00-00"
	s, m, _ := alone(t)
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(1, 0xabc, true))
	s.Put(t, old+"/snap/db", "data")
	p, err := NewPruneData(t.Context(), s.Env)
	phasetest.Fatal(t, err)
	m.health[0].Err = errors.New("no leader")
	fact.Error(t, p.run(t.Context(), s.Env), "no leader")
	if s.Get(t, old+"/snap/db") != "data" {
		t.Error("it's gone")
	}
}
