// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// reconfigureScenario changes everything on the control plane of an earlier version's init.
var reconfigureScenario = phasetest.Scenario{
	Name: "reconfigure",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		err := phasetest.PrepareApply(bootstrap.Init)(t, s)
		node := phasetest.ReportingNode("cp-1")
		node["metadata"] = map[string]any{"name": "cp-1", "labels": map[string]any{cluster.LabelControlPlane: ""}}
		s.API.Put("/api/v1/nodes/cp-1", node)
		return err
	},
	Run:    reconfigure,
	Reads:  "/var/lib/kubelet/config.yaml",
	Renews: []string{phasetest.LeaseWrite},
}

// reconfigure runs the command, and once more if the first run only puts back an interrupted change.
func reconfigure(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	opts := config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
	living, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, thisnode.Current(h), opts)
	if err != nil {
		return err
	}
	interrupted, err := Interrupted(&step.Env{Host: h, Config: living})
	if err != nil {
		return err
	}
	if interrupted != nil {
		if err := phasetest.CrashRun(ctx, living, h, endpoint, say, PutBack(interrupted, false), nil); err != nil {
			return err
		}
	}
	limits := living.Timeouts
	api := cluster.New(phasetest.CrashOptions(h, endpoint, true, config.DefaultAdminKubeconfig, "", limits.KubernetesAPICall))
	change, _, err := reconfiguring.Load(ctx, api, &config.Source{Name: "change.yaml", Data: []byte(everything)}, reconfiguring.Self(h), opts)
	if err != nil {
		return err
	}
	r, err := New(&step.Env{Host: h, Config: living}, change, "/usr/bin/slipway")
	if err != nil {
		return err
	}
	return phasetest.CrashRun(ctx, change.Node, h, endpoint, say, r.Phases(), nil)
}

var scenarios = []phasetest.Scenario{reconfigureScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }
