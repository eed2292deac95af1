// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/tier"
)

// The first has a network that its owner has set up, the second flannel.
var (
	crashingReset        = crashing{name: "reset", prepare: prepareReset(networkOwn), run: crashReset}
	crashingResetFlannel = crashing{name: "reset-flannel", prepare: prepareReset(flannelOwn), run: crashReset}
)

// prepareReset creates a complete node.
func prepareReset(network map[string]string) func(*testing.T, *scene) error {
	return func(_ *testing.T, s *scene) error {
		s.api = fakeapi.New(nil)
		return errors.Join(lay(s.root, usersOwn), lay(s.root, nodesOwn), lay(s.root, network))
	}
}

func crashReset(ctx context.Context, h *lastingHost, _ string, say io.Writer) error {
	flags := config.Flags{Given: []string{"network"}, Network: true}
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
	return Run(ctx, &Env{Config: n, Host: h, Etcd: lastingEtcd{host: h}, UI: ui.NewLines(say, io.Discard)}, Reset(), Options{})
}

// TestResetFaults refuses each order to the host once. The run reports that in an error or a warning, unless it tries
// again by itself, and the same run again finishes as if nothing had happened.
func TestResetFaults(t *testing.T) {
	for _, c := range []crashing{crashingReset, crashingResetFlannel} {
		t.Run(c.name, func(t *testing.T) { resetFaults(t, c) })
	}
}

func resetFaults(t *testing.T, c crashing) {
	want := newScene(t, c)
	defer want.close()
	const more = "^remove (directory|empty) /" // which only reset gives
	count := &refusal{more: more}
	if said, err := want.on(t.Context(), count.on(want.root)); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, i := range tier.Sample(t, 8, count.count) {
		s := newScene(t, c)
		f := &refusal{at: i + 1, more: more}
		said, err := s.on(t.Context(), f.on(s.root))
		if err == nil && !strings.Contains(said, "[WARNING]") && !strings.HasPrefix(f.what, "remove "+fakePods) {
			t.Errorf("%s was refused, but the run does not report it:\n%s", f.what, said)
		}
		noPartialFile(t, f.what, s.root+"/etc/kubernetes/manifests")
		if f.what != "remove "+fakeMember { // a refusal of etcd is not retried
			s.finishesAs(t, want, f.what+" refused")
		}
		s.close()
	}
	if count.count < 20 {
		t.Errorf("only %d orders, too few to be plausible", count.count)
	}
}
