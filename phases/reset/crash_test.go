// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/phasetest"
	"github.com/slipway-k8s/slipway/test/tier"
)

// In the first scenario, the owner has set up the network; the second has flannel.
var (
	resetScenario        = phasetest.Scenario{Name: "reset", Prepare: prepareReset(networkOwn), Run: crashReset}
	resetFlannelScenario = phasetest.Scenario{Name: "reset-flannel", Prepare: prepareReset(flannelOwn), Run: crashReset}
)

func prepareReset(network map[string]string) func(*testing.T, *phasetest.Scene) error {
	return func(_ *testing.T, s *phasetest.Scene) error {
		s.API = fakeapi.New(nil)
		return errors.Join(lay(s.Root, usersOwn), lay(s.Root, nodesOwn), lay(s.Root, network))
	}
}

func crashReset(ctx context.Context, h *phasetest.LastingHost, _ string, say io.Writer) error {
	flags := config.ResetFlags{Given: []string{"network"}, Network: true}
	n, _, err := config.LoadReset(nil, flags, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	if err != nil {
		return err
	}
	defer h.Real.Close()
	end, err := h.Real.Lock()
	if err != nil {
		return err
	}
	defer end()
	return step.Run(ctx, &step.Env{Config: n, Host: h, Etcd: lastingEtcd{host: h}, UI: ui.NewLines(say, io.Discard)}, Node(), step.Options{})
}

// TestResetFaults refuses each order to the host once. The run reports it as an error or a warning, unless it retries by itself,
// and a second run finishes as if nothing had happened.
func TestResetFaults(t *testing.T) {
	for _, c := range []phasetest.Scenario{resetScenario, resetFlannelScenario} {
		t.Run(c.Name, func(t *testing.T) { resetFaults(t, c) })
	}
}

func resetFaults(t *testing.T, c phasetest.Scenario) {
	want := phasetest.NewScene(t, c)
	defer want.Close()
	const more = "^remove (directory|empty) /" // orders only reset gives
	count := &phasetest.Refusal{More: more}
	if said, err := want.On(t.Context(), count.On(want.Root)); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, i := range tier.Sample(t, 8, count.Count) {
		s := phasetest.NewScene(t, c)
		f := &phasetest.Refusal{At: i + 1, More: more}
		said, err := s.On(t.Context(), f.On(s.Root))
		if err == nil && !strings.Contains(said, "[WARNING]") && !strings.HasPrefix(f.What, "remove "+phasetest.FakePods) {
			t.Errorf("%s was refused, but the run does not report it:\n%s", f.What, said)
		}
		phasetest.NoPartialFile(t, f.What, s.Root+"/etc/kubernetes/manifests")
		if f.What != "remove "+fakeMember { // a refusal of etcd is not retried
			s.FinishesAs(t, want, f.What+" refused")
		}
		s.Close()
	}
	if count.Count < 20 {
		t.Errorf("only %d orders, too few to be plausible", count.Count)
	}
}

var scenarios = []phasetest.Scenario{resetScenario, resetFlannelScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }
