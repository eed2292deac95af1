// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRollbackKeepsReconfigured: a file that another command has written since the upgrade counts as edited.
func TestRollbackKeepsReconfigured(t *testing.T) {
	const scheduler = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	for name, row := range map[string]struct {
		change func(t *testing.T, env *step.Env, root string)
		want   []string
	}{
		"nothing": {func(*testing.T, *step.Env, string) {}, nil},
		"a change that counts": {func(t *testing.T, env *step.Env, root string) {
			t.Helper()
			next := fixture.Get(t, root, scheduler) + "# next\n"
			record, err := trial.Begin(t.Context(), env, "/usr/bin/slipway", []trial.Write{{Path: scheduler, Data: []byte(next)}}, trial.Record{})
			phasetest.Fatal(t, err)
			fixture.Put(t, root, scheduler, next)
			phasetest.Fatal(t, record.MarkCompleted(env))
		}, []string{scheduler}},
		"another file than the upgrade's": {func(t *testing.T, _ *step.Env, root string) {
			t.Helper()
			editFile(t, root+backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\nwritten: {kube-scheduler.yaml: abc}")
		}, []string{scheduler}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			h := notedHost{phasetest.NewLastingHost(s.Root), nil}
			_, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
			phasetest.Fatal(t, err)
			row.change(t, &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: otherMembers{}, UI: ui.NewLines(io.Discard, io.Discard)}, s.Root)
			var said strings.Builder
			r, _, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, &said)
			phasetest.Fatal(t, err)
			if !slices.Equal(r.edited, row.want) {
				t.Errorf("edited: %v", r.edited)
			}
			fact.In(t, said.String(), row.want...)
		})
	}
}

// sizedMember is this node's, with a database of this size.
type sizedMember struct {
	otherMembers
	size int64
}

func (m sizedMember) Health(ctx context.Context) ([]etcd.Health, error) {
	all, err := m.otherMembers.Health(ctx)
	all[0].Status.Size = m.size
	return all, err
}

// TestQuotaInRollback: the backup's quota has to leave room for etcd's database, unless its static Pod or its database goes as well.
func TestQuotaInRollback(t *testing.T) {
	const manifest = "/etc/kubernetes/manifests/etcd.yaml"
	for name, row := range map[string]struct {
		size           int64
		quota          string
		stays, restore bool
		found          bool
	}{
		"outgrown":            {3 << 30, "8589934592", false, false, true},
		"with room":           {1 << 30, "8589934592", false, false, false},
		"the same quota":      {3 << 30, "2147483648", false, false, false},
		"a newer etcd stays":  {3 << 30, "8589934592", true, false, false},
		"the snapshot's data": {3 << 30, "8589934592", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			if !row.stays {
				replaceFile(t, s.Root, backedUpManifests+"etcd.yaml", manifest)
			}
			editFile(t, s.Root+manifest, "    - etcd\n", "    - etcd\n    - --quota-backend-bytes="+row.quota+"\n")
			h, members := phasetest.NewLastingHost(s.Root), sizedMember{size: row.size}
			r, n, err := newRollback(t.Context(), noAPI(), h, members, row.restore, io.Discard)
			phasetest.Fatal(t, err)
			found := r.quotaQuestion(&step.Env{Config: n, Host: h, Etcd: members}).Run(t.Context(), h)
			if !row.found && len(found) == 0 {
				return
			}
			if len(found) != 1 || !row.found || found[0].Severity != fault.Error {
				t.Fatalf("found %v", found)
			}
			fact.In(t, found[0].Remedy, backedUpManifests+"etcd.yaml")
		})
	}
}
