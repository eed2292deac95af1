// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// needed is an etcd whose other member fails once this node has the turn.
type needed struct {
	*phasetest.FakeMembers
	taken func() bool
}

func (n needed) Health(ctx context.Context) ([]etcd.Health, error) {
	if n.taken() {
		n.Down = map[string]error{"cp-2": errors.New("connection refused")}
	}
	return n.FakeMembers.Health(ctx)
}

// TestMoveWithoutTurn: a control plane that may not restart now keeps everything that its API server and etcd read, and runs on.
func TestMoveWithoutTurn(t *testing.T) {
	for name, holder := range map[string]string{"another has the Lease": "cp-2", "the others need its etcd": ""} {
		t.Run(name, func(t *testing.T) {
			s, members := single(t)
			phasetest.Fatal(t, s.API.Ensure(t.Context(), cluster.NewNode("cp-2")))
			members.List = append(members.List, etcd.Member{Name: "cp-2", PeerURL: "https://192.0.2.12:2380"})
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.EtcdAPICall = time.Millisecond, time.Millisecond
			if holder != "" {
				s.Holds(t, holder, 0)
			} else {
				s.Etcd = needed{members, func() bool { return s.Holder(t) == "cp-1" }}
			}
			before := map[string]string{}
			for _, path := range []string{serverCert, "/etc/kubernetes/pki/etcd/peer.crt", "/etc/kubernetes/scheduler.conf", flagsEnv, phasetest.APIServerManifest} {
				before[path] = s.Get(t, path)
			}
			if err := run(t, s, toNext); err == nil {
				t.Error("it has moved")
			}
			for path, text := range before {
				if s.Get(t, path) != text {
					t.Errorf("%s has changed", path)
				}
			}
			if got := s.Holder(t); got != holder {
				t.Errorf("the Lease is held by %q", got)
			}
		})
	}
}

// TestMoveMember: the member's former address may have another form than Go's.
func TestMoveMember(t *testing.T) {
	s, members := single(t)
	path := s.Config.Paths.StaticPod(manifests.EtcdName)
	s.Put(t, path, strings.ReplaceAll(s.Get(t, path), former, "[fd00::2]"))
	members.List[0].PeerURL = "https://[FD00:0::1]:2380"
	m := &Move{From: []netip.Addr{netip.MustParseAddr("fd00::1")}, To: netip.MustParseAddr("fd00::2")}
	phasetest.Fatal(t, m.moveMember(t.Context(), s.Env))
	if at := members.List[0].PeerURL; at != "https://[fd00::2]:2380" {
		t.Errorf("etcd's member is at %s", at)
	}
}

// TestMoveOwnMember: another host may have a former address by now. Its member stays, because this host's log has this member's ID.
func TestMoveOwnMember(t *testing.T) {
	s, members := single(t)
	path := s.Config.Paths.StaticPod(manifests.EtcdName)
	s.Put(t, path, strings.ReplaceAll(s.Get(t, path), former, next))
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(7, 1, true))
	members.List = []etcd.Member{{ID: 8, Name: "cp-2", PeerURL: phasetest.OwnPeer}, {ID: 7, Name: "cp-1", PeerURL: "https://192.0.2.66:2380"}}
	m := &Move{From: []netip.Addr{netip.MustParseAddr(former), netip.MustParseAddr("192.0.2.66")}, To: toNext.To}
	phasetest.Fatal(t, m.moveMember(t.Context(), s.Env))
	if other, own := members.List[0].PeerURL, members.List[1].PeerURL; other != phasetest.OwnPeer || own != phasetest.MovedPeer {
		t.Errorf("this host's member is at %s, another at %s", own, other)
	}
}

// TestMoveFromOtherURL: a member that only this host could reach gets the new address. One with an address in another network keeps it.
func TestMoveFromOtherURL(t *testing.T) {
	for from, want := range map[string]string{"http://localhost:2380": phasetest.MovedPeer, "https://10.1.1.1:2380": "https://10.1.1.1:2380"} {
		s, members := single(t)
		path := s.Config.Paths.StaticPod(manifests.EtcdName)
		s.Put(t, path, strings.ReplaceAll(s.Get(t, path), former, next))
		s.Put(t, phasetest.EtcdLog, phasetest.LogOf(7, 1, true))
		members.List = []etcd.Member{{ID: 7, Name: "cp-1", PeerURL: from}}
		m := &Move{From: []netip.Addr{netip.MustParseAddr(former)}, To: toNext.To}
		phasetest.Fatal(t, m.moveMember(t.Context(), s.Env))
		if at := members.List[0].PeerURL; at != want {
			t.Errorf("from %s to %s, want %s", from, at, want)
		}
	}
}
