// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// changingHost is a host whose port and unit change between looks, as they do while systemd restarts the kubelet.
type changingHost struct {
	*fakeHost
	held    []bool          // at each attempt to listen; the last one stays
	holders []*host.Process // at each look at the holder; the last one stays
	pids    []int           // of the unit
}

func next[T any](values *[]T) T {
	v := (*values)[0]
	if len(*values) > 1 {
		*values = (*values)[1:]
	}
	return v
}

func (h *changingHost) PortFree(string, int) error {
	if next(&h.held) {
		return errors.Wrap(unix.EADDRINUSE, "port 10250 is in use")
	}
	return nil
}

func (h *changingHost) PortHolder(int) (host.Process, bool) {
	if p := next(&h.holders); p != nil {
		return *p, true
	}
	return host.Process{}, false
}

func (h *changingHost) Unit(context.Context, string) (host.UnitState, error) {
	return host.UnitState{LoadState: "loaded", MainPID: uint32(next(&h.pids))}, nil
}

func TestPortOfAKubeletThatIsRestarted(t *testing.T) {
	before, after := &host.Process{PID: 7, Name: kubelet}, &host.Process{PID: 9, Name: kubelet}
	for name, tt := range map[string]struct {
		host changingHost
		want []string
	}{
		"gone between the attempt and the look": {host: changingHost{
			held: []bool{true, false}, holders: []*host.Process{nil}, pids: []int{7}}},
		"gone, and back again": {host: changingHost{
			held: []bool{true}, holders: []*host.Process{nil, nil, after}, pids: []int{9}},
			want: []string{"[NOTE ] | kubelet | process 9 | port 10250"}},
		"another process when the unit is read": {host: changingHost{
			held: []bool{true}, holders: []*host.Process{before, after}, pids: []int{9}},
			want: []string{"[NOTE ] | kubelet | process 9 | port 10250"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.earlier("kube-apiserver")
			tt.host.fakeHost = s.fakeHost
			got := portFree(s.node, portUse{"", 10250, kubelet})(t.Context(), &tt.host)
			expect(t, got, tt.want...)
		})
	}
}

// TestPortsOfAddresses: a port that another program has on another address does
// not matter.
func TestPortsOfAddresses(t *testing.T) {
	s := newScene(t)
	c := &s.node.Cluster
	c.APIServer.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "192.0.2.11"}}
	c.Scheduler.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "::"}}
	for _, port := range []string{"6443", "10259", "10257", "10250", "2379", "2380"} {
		s.found("Port-" + port)
	}
	own := s.node.AdvertiseAddress.String()
	want := []string{"192.0.2.11:6443", ":10259", "127.0.0.1:10257", ":10250", net.JoinHostPort(own, "2379"), net.JoinHostPort(own, "2380")}
	if diff := cmp.Diff(want, s.listened); diff != "" {
		t.Error(diff)
	}
}
