// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestResetEndsTrial: a change that was interrupted on trial doesn't come back to a host that was reset.
func TestResetEndsTrial(t *testing.T) {
	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config = s.Config.With(func(n *config.Node) { n.Reset = &config.Reset{} })
	s.Put(t, manifest, "before")
	record, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", []trial.Write{{Path: manifest}}, trial.Record{})
	phasetest.Fatal(t, err)
	c := &cleanup{Env: s.Env, announced: map[string]bool{}}
	c.endTrial(t.Context())
	last, err := trial.Last(s.Env)
	if err != nil || last.Dir() != record.Dir() || last.State != trial.Reverted || len(c.failed) > 0 {
		t.Errorf("%+v, %v, %v", last, err, c.failed)
	}
	if units, err := filepath.Glob(s.Root + "/etc/systemd/system/*"); err != nil || len(units) > 0 {
		t.Errorf("left %q, %v", units, err)
	}
}
