// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// moveScenario moves the control plane of an earlier version's init.
var moveScenario = phasetest.Scenario{
	Name: "move",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		err := phasetest.PrepareApply(bootstrap.Init)(t, s)
		node := phasetest.ReportingNode("cp-1")
		node["metadata"] = map[string]any{"name": "cp-1", "labels": map[string]any{cluster.LabelControlPlane: ""}}
		s.API.Put("/api/v1/nodes/cp-1", node)
		return err
	},
	Run:    moveOn,
	Reads:  "/etc/kubernetes/kubelet.conf",
	Renews: []string{phasetest.LeaseWrite},
}

// moveOn runs the command on a host that has the new address.
func moveOn(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	opts := config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
	n, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, thisnode.Current(h), opts)
	if err != nil {
		return err
	}
	h.Has.Addresses = []netip.Addr{netip.MustParseAddr(next)}
	m, n, err := New(h, n, Move{To: netip.MustParseAddr(next)})
	if err != nil {
		return err
	}
	return phasetest.CrashRun(ctx, n, h, endpoint, say, m.Phases(), nil)
}

var scenarios = []phasetest.Scenario{moveScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }
