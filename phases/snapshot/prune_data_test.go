// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// pruning is a state in which old data is pruned, and the facts of the error.
type pruning struct {
	change func(*testing.T, *phasetest.Stage, *members)
	facts  []string
}

// rolledBack has backups of upgrades, and a rollback that stands in the way of pruning.
func rolledBack(p upgrading.Progress, upgrades ...time.Time) pruning {
	return pruning{func(t *testing.T, s *phasetest.Stage, _ *members) {
		t.Helper()
		root := node.BackupRoot(s.Env)
		phasetest.Fatal(t, s.Host.EnsureDir(root, 0o700))
		phasetest.Fatal(t, p.Write(s.Host, root))
		for _, at := range upgrades {
			s.Put(t, root+"/"+upgrading.ManifestBackup+at.Format(host.BackupTime)+"/etcd.yaml", "kind: Pod\n")
		}
	}, []string{"`slipway upgrade rollback --restore-etcd`", "/etc/kubernetes/tmp/slipway-rollback.yaml"}}
}

// TestPruneData: only data that a replacement has set aside goes, and only while nobody may need it.
func TestPruneData(t *testing.T) {
	const aside = "/var/lib/etcd/member.before-rollback-2026-11-27-12-00-00"
	for name, c := range map[string]pruning{
		"all is well": {func(*testing.T, *phasetest.Stage, *members) {}, nil},
		"etcd doesn't work": {func(_ *testing.T, _ *phasetest.Stage, m *members) { m.health[0].Err = errors.New("no leader") },
			[]string{"no leader"}},
		"etcd doesn't answer": {func(_ *testing.T, _ *phasetest.Stage, m *members) {
			m.Fail = map[string]error{"health": errors.New("192.0.2.11: connection refused")}
		}, []string{"192.0.2.11"}},
		"etcd runs with other data": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			s.Put(t, phasetest.EtcdLog, phasetest.LogOf(1, 0xdef, true))
		}, []string{"abc", "def"}},
		"etcd has no data in place":     {func(t *testing.T, s *phasetest.Stage, _ *members) { s.Remove(t, phasetest.EtcdLog) }, []string{"abc", "0"}},
		"an unfinished rollback":        rolledBack(upgrading.Progress{Began: noon, OldData: aside}, noon),
		"an unfinished rollback's data": rolledBack(upgrading.Progress{Began: noon, OldData: "/x", Restored: true}, noon),
		"a rollback that never began":   {rolledBack(upgrading.Progress{Began: noon, OldData: "/x"}, noon).change, nil},
		"a rollback, and another upgrade since": {rolledBack(upgrading.Progress{Began: noon, OldData: aside, Restored: true},
			noon, noon.AddDate(0, 3, 0)).change, nil},
		"a rollback without its backup": {rolledBack(upgrading.Progress{Began: noon, OldData: aside, Restored: true}).change, nil},
		"a rollback that has ended":     {rolledBack(upgrading.Progress{Began: noon, OldData: aside, Finished: noon}, noon).change, nil},
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
			if strings.HasPrefix(fault.Remedy(err), "run ") {
				t.Errorf("it begins with a command that may replace the data: %s", fault.Remedy(err))
			}
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
