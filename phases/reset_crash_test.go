// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
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

func crashReset(ctx context.Context, h runHost, _ string, say io.Writer) error {
	flags := config.Flags{Given: []string{"network"}, Network: true}
	n, _, err := config.LoadReset(nil, flags, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	if err != nil {
		return err
	}
	defer h.Close()
	end, err := h.Lock()
	if err != nil {
		return err
	}
	defer end()
	on := &resetHost{Host: h}
	return Run(ctx, &Env{Config: n, Host: on, Etcd: lastingEtcd{host: on}, UI: ui.NewLines(say, io.Discard)}, Reset(), Options{})
}

// faultyReset also refuses orders that only reset gives.
type faultyReset struct{ *faultyHost }

func (h faultyReset) RemoveTree(path string) (host.Removal, error) {
	if err := h.fault("remove directory " + path); err != nil {
		return host.Removal{}, &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return h.faultyHost.RemoveTree(path)
}

func (h faultyReset) RemoveEmpty(path string) (bool, error) {
	if err := h.fault("remove empty " + path); err != nil {
		return false, &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return h.faultyHost.RemoveEmpty(path)
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
	count := faultyReset{&faultyHost{lastingHost: newLastingHost(want.root)}}
	if said, err := want.on(t.Context(), count); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, i := range tier.Sample(t, 8, count.count) {
		s := newScene(t, c)
		h := faultyReset{&faultyHost{lastingHost: newLastingHost(s.root), at: i + 1}}
		said, err := s.on(t.Context(), h)
		if err == nil && !strings.Contains(said, "[WARNING]") && !strings.HasPrefix(h.what, "remove "+fakePods) {
			t.Errorf("%s was refused, but the run does not report it:\n%s", h.what, said)
		}
		noPartialFile(t, h.what, s.root+"/etc/kubernetes/manifests")
		if h.what != "remove "+fakeMember { // a refusal of etcd is not retried
			s.finishesAs(t, want, h.what+" refused")
		}
		s.close()
	}
	if count.count < 20 {
		t.Errorf("only %d orders, too few to be plausible", count.count)
	}
}
