// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestSpace: the control plane stops only if there's room for all that follows, and the copy for the replay isn't asked for twice.
func TestSpace(t *testing.T) {
	for name, c := range map[string]struct {
		applied    uint64
		runs, drop bool
		copies     uint64 // that have to fit
	}{
		"changes to replay":         {applied, false, false, 2},
		"all changes are applied":   {last, false, false, 1},
		"they're to be dropped":     {committed, false, true, 1},
		"it runs, maybe with some":  {last, true, false, 2},
		"it runs, and they'd go":    {last, true, true, 2},
		"uncommitted ones are kept": {committed, false, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := survivor(t, 3)
			phasetest.Fatal(t, hasApplied(s.Root+member, c.applied))
			if c.runs {
				db, err := bbolt.Open(s.Root+member+"/snap/db", 0o600, &bbolt.Options{Timeout: time.Second})
				phasetest.Fatal(t, err)
				defer db.Close()
			}
			r, err := New(t.Context(), s.Env, Options{Drop: c.drop})
			phasetest.Fatal(t, err)
			for copies := c.copies - 1; copies <= c.copies; copies++ {
				leaveRoom(s, r, copies)
				if err := r.preflight(t.Context(), s.Env); copies < c.copies {
					fact.Error(t, err, "EtcdRestoreSpace")
				} else {
					phasetest.Fatal(t, err)
				}
			}
		})
	}
}

// TestSpaceAfterReplay: once the copy is there, only the new data has to fit.
func TestSpaceAfterReplay(t *testing.T) {
	s, _ := survivor(t, 3)
	r, err := New(t.Context(), s.Env, Options{})
	phasetest.Fatal(t, err)
	replayed := s.Root + r.replayDir() + "/member"
	phasetest.Fatal(t, os.CopyFS(replayed, os.DirFS(s.Root+member)))
	phasetest.Fatal(t, hasApplied(replayed, last))
	r.replacement.OldData = member + ".before-recover-x"
	leaveRoom(s, r, 1)
	phasetest.Fatal(t, r.build(t.Context(), s.Env))
}

func leaveRoom(s *phasetest.Stage, r *Recovery, copies uint64) {
	const total = 100 << 30
	free := total/10 + copies*(uint64(r.end.size)+backup.LogsRoom)
	s.FakeHost.Has.Space["/"] = host.Space{Free: free, Total: total, FreeInodes: 900_000, TotalInodes: 1_000_000}
}

// TestClears: what a killed run was making takes no space from the next run, whether that one had stopped etcd or not.
func TestClears(t *testing.T) {
	for name, stopped := range map[string]bool{"etcd runs": false, "etcd has stopped": true} {
		t.Run(name, func(t *testing.T) {
			s, _ := survivor(t, 3)
			phasetest.Fatal(t, hasApplied(s.Root+member, last))
			if stopped {
				interrupt(t, s, member+".before-recover-x")
			}
			s.Put(t, phasetest.HalfBuilt+"/snap/db", "half")
			s.Host = phasetest.Cramped{Host: s.Host, By: phasetest.HalfBuilt}
			r, err := New(t.Context(), s.Env, Options{})
			phasetest.Fatal(t, err)
			phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
			phasetest.Fatal(t, r.replay(t.Context(), s.Env))
			if left, err := host.Exists(s.Host, phasetest.HalfBuilt); err != nil || left {
				t.Errorf("it is left: %v", err)
			}
		})
	}
}
