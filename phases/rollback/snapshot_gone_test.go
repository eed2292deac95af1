// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestSnapshotGone: once the new data is made, a run that finishes the restore needs its snapshot no more.
func TestSnapshotGone(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	makes := func() *Rollback {
		r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, true, io.Discard)
		phasetest.Fatal(t, err)
		env := &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: otherMembers{}, UI: ui.NewLines(io.Discard, io.Discard)}
		phasetest.Fatal(t, r.makeData(t.Context(), env))
		return r
	}
	first := makes()
	made := first.restore.replacement.NewData + "/snap/db"
	before := fixture.Get(t, s.Root, made)
	replaceFile(t, s.Root, "/etc/kubernetes/manifests/etcd.yaml", "")
	replaceFile(t, s.Root, backedUpSnapshot, "")
	again := makes()
	if fixture.Get(t, s.Root, made) != before || again.Progress != first.Progress || again.restore.snapshot != backedUpSnapshot {
		t.Errorf("%+v, at first %+v, from %s", again.Progress, first.Progress, again.restore.snapshot)
	}
	fact.In(t, again.Summary(), "2026-02-03 04:05:06 UTC")
	fact.NotIn(t, again.Summary(), "revision")
	fact.List(t, again.restore.Names())
}
