// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"io"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRecheck: a rollback looks again under the lock, because the question may have taken long. Nobody can ignore the result.
func TestRecheck(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(t *testing.T, env *step.Env, answer otherMembers)
		facts     []string // none if it goes on
	}{
		"nothing": {func(*testing.T, *step.Env, otherMembers) {}, nil},
		"a silent member starts": {func(_ *testing.T, _ *step.Env, answer otherMembers) {
			answer.peers[peerOf("cp-2")] = nil
		}, []string{"run: cp-2."}},
		"another rollback ends": {func(t *testing.T, env *step.Env, _ otherMembers) {
			t.Helper()
			b, err := upgrading.LastBackup(env.Host, phasetest.RollbackBackups, upgrading.Progress{})
			phasetest.Fatal(t, err)
			p := upgrading.Progress{Began: b.Began, Ended: b.Ended, Snapshot: backedUpSnapshot, OldData: "/var/lib/etcd/member-x", Restored: true, Finished: time.Unix(1, 0)}
			phasetest.Fatal(t, p.Write(env.Host, phasetest.RollbackBackups))
		}, []string{phasetest.RollbackBackups[:len(phasetest.RollbackBackups)-1]}},
		"another upgrade begins": {func(t *testing.T, env *step.Env, _ otherMembers) {
			t.Helper()
			phasetest.Fatal(t, env.Host.EnsureDir(phasetest.RollbackBackups+upgrading.ManifestBackup+"2026-02-03-04-06-07", 0o700))
		}, []string{phasetest.RollbackBackups[:len(phasetest.RollbackBackups)-1]}},
		"a restore begins": {func(t *testing.T, env *step.Env, _ otherMembers) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/member"}.Write(env))
		}, []string{"`slipway etcd recover`"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			h := phasetest.NewLastingHost(s.Root)
			hasDatabase(t, s.Root, membersOfNames([]string{"cp-1", "cp-2"}))
			answer := otherMembers{err: errors.New("connection refused"), peers: map[string][]etcd.Member{}}
			r, n, err := newRollback(t.Context(), noAPI(), h, answer, true, io.Discard)
			phasetest.Fatal(t, err)
			n.IgnorePreflightErrors = []string{fault.EtcdOtherMembers}
			env := &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: answer, UI: ui.NewLines(io.Discard, io.Discard)}
			row.meanwhile(t, env, answer)
			err = r.preflight(t.Context(), env)
			switch {
			case row.facts == nil:
				phasetest.Fatal(t, err)
			case err == nil:
				t.Fatal("no error")
			default:
				fact.In(t, fixture.Told(err), row.facts...)
			}
		})
	}
}

// notedHost has notes of all files except the edited ones.
type notedHost struct {
	*phasetest.LastingHost
	edited map[string]bool
}

func (h notedHost) Unchanged(path string) bool        { return !h.edited[path] }
func (h notedHost) CreatedBySlipway(path string) bool { return true }

// TestRecheckFindsEdits: an edit made during the question is found, too.
func TestRecheckFindsEdits(t *testing.T) {
	const settings = "/var/lib/kubelet/config.yaml"
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := notedHost{phasetest.NewLastingHost(s.Root), map[string]bool{}}
	r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
	phasetest.Fatal(t, err)
	if len(r.edited) != 0 {
		t.Errorf("edited: %v", r.edited)
	}
	h.edited[settings] = true
	env := &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: otherMembers{}, UI: ui.NewLines(io.Discard, io.Discard)}
	phasetest.Fatal(t, r.recheck(t.Context(), env))
	if len(r.edited) != 1 || r.edited[0] != settings {
		t.Errorf("edited: %v", r.edited)
	}
}
