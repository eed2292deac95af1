// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestKubeletStart(t *testing.T) {
	refused := errors.New("job refused")
	const stop, start = "stop kubelet.service", "start kubelet.service"
	tests := []struct {
		name   string
		before func(t *testing.T, s *phasetest.Stage) // after a first run
		fail   string
		cause  error // of fail, if not a plain refusal
		want   []string
		says   []string
		err    string
	}{
		{name: "runs with these files", want: nil, says: []string{"already running"}},
		{name: "a file differs", want: []string{stop, "write kubeadm-flags.env", "reload", start}, says: []string{"Writing /var/lib/kubelet/kubeadm-flags.env"},
			before: func(t *testing.T, s *phasetest.Stage) {
				s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_EXTRA_ARGS=")
			}},
		{name: "failed with these files", want: []string{stop, "reload", start}, says: []string{"Starting"},
			before: func(_ *testing.T, s *phasetest.Stage) {
				s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed"}
			}},
		{name: "systemd knows the unit", want: []string{stop, start}, says: []string{"Starting"},
			before: func(_ *testing.T, s *phasetest.Stage) {
				s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Current: true}
			}},
		{name: "to be enabled", want: []string{"enable kubelet.service"}, says: []string{"already running"},
			before: func(_ *testing.T, s *phasetest.Stage) { s.Config.EnableKubelet = true }},
		{name: "cannot be stopped", want: []string{stop}, fail: stop, err: "job refused",
			before: func(t *testing.T, s *phasetest.Stage) { s.Put(t, "/var/lib/kubelet/config.yaml", "") }},
		{name: "cannot be started", want: []string{stop, "write config.yaml", "reload", start}, fail: start, err: "job refused",
			before: func(t *testing.T, s *phasetest.Stage) { s.Put(t, "/var/lib/kubelet/config.yaml", "") }},
		{name: "a file cannot be written", want: []string{stop, "write config.yaml", start}, fail: "write config.yaml", err: "job refused", says: []string{"running again"},
			before: func(t *testing.T, s *phasetest.Stage) { s.Put(t, "/var/lib/kubelet/config.yaml", "") }},
		{name: "no init system", want: []string{stop, "write config.yaml"}, fail: stop, cause: host.ErrNoSystemd,
			says:   []string{"[WARNING]", "/run/systemd/system", "neither stopped", "[WARNING]   start it"},
			before: func(t *testing.T, s *phasetest.Stage) { s.Put(t, "/var/lib/kubelet/config.yaml", "") }},
		{name: "no init system, and nothing to write", says: []string{"/run/systemd/system"},
			before: func(_ *testing.T, s *phasetest.Stage) {
				s.FakeHost.Fail["Unit"] = host.ErrNoSystemd
			}},
		{name: "no init system to enable it in", want: []string{"enable kubelet.service"}, fail: "enable kubelet.service", cause: host.ErrNoSystemd,
			says: []string{"/run/systemd/system"}, before: func(_ *testing.T, s *phasetest.Stage) { s.Config.EnableKubelet = true }},
		{name: "the bus cannot be reached", err: "no bus",
			before: func(_ *testing.T, s *phasetest.Stage) {
				s.FakeHost.Fail["Unit"] = errors.New("no bus")
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Play(t, Start())
			s.FakeHost.Jobs = s.FakeHost.Jobs[len(s.FakeHost.Jobs)-1:] // "start", since the stub's kubelet runs only with it
			s.Said.Reset()
			if tt.before != nil {
				tt.before(t, s)
			}
			if tt.fail != "" {
				s.FakeHost.Fail[tt.fail] = cmp.Or(tt.cause, refused)
			}
			err := runKubeletStart(t.Context(), s.Env)
			if got := phasetest.Message(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if diff := gocmp.Diff(tt.want, append([]string(nil), s.FakeHost.Jobs[1:]...)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			fact.In(t, s.Said.String(), tt.says...)
		})
	}
}

func TestKubeletStartAnew(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, Start())
	want := []string{"stop kubelet.service", "write kubeadm-flags.env", "write instance-config.yaml", "write config.yaml",
		"write kubelet.key", "write kubelet.crt", "reload", "start kubelet.service"}
	if diff := gocmp.Diff(want, s.FakeHost.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}
