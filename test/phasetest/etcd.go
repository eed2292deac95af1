// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

// EtcdLog is a file that exists once etcd has run.
const EtcdLog = "/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal"

// LogOf returns the start of a member's log. With entries, the member has received some.
func LogOf(member, cluster uint64, entries bool) string {
	var sum uint32
	record := func(kind uint64, data []byte) string {
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)
		r := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), kind)
		r = protowire.AppendVarint(protowire.AppendTag(r, 2, protowire.VarintType), uint64(sum))
		r = protowire.AppendBytes(protowire.AppendTag(r, 3, protowire.BytesType), data)
		return string(binary.LittleEndian.AppendUint64(nil, uint64(len(r)))) + string(r)
	}
	id := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), member)
	text := record(1, protowire.AppendVarint(protowire.AppendTag(id, 2, protowire.VarintType), cluster))
	if entries {
		text += record(2, []byte("entry"))
	}
	return text + strings.Repeat("\x00", 64)
}

// Voters are three members, each with its error.
type Voters struct {
	FakeMembers
	Own, Cp2, Cp3 error
	Leaderless    bool // reported by its own member
}

func (v *Voters) Health(context.Context) ([]etcd.Health, error) {
	list := []etcd.Health{
		{Member: etcd.Member{ID: 1, Name: "cp-1", PeerURL: OwnPeer}, Answers: v.Leaderless || v.Own == nil, Err: v.Own},
		{Member: etcd.Member{ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}, Answers: v.Cp2 == nil, Err: v.Cp2},
		{Member: etcd.Member{ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"}, Answers: v.Cp3 == nil, Err: v.Cp3},
	}
	if v.Leaderless {
		list[0].Status = etcd.Status{Version: "3.7.0"}
	}
	return list, v.Fail["health"]
}

// FakeMembers is the membership of an etcd. Fail has the errors to return, by method; Down has the errors of unreachable members,
// by name. While Health fails, TellsPeers says whether the member at OwnPeer answers its peers.
type FakeMembers struct {
	etcd.Etcd  // methods these phases don't call
	List       []etcd.Member
	Down       map[string]error
	Fail       map[string]error
	Did        []string
	TellsPeers bool
	name       string // of the joining member, once it runs
}

func (m *FakeMembers) Members(context.Context) ([]etcd.Member, error) { return m.List, m.Fail["list"] }

func (m *FakeMembers) Health(ctx context.Context) ([]etcd.Health, error) {
	return m.HealthOf(ctx, m.List), m.Fail["health"]
}

func (m *FakeMembers) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := Silent(urls)
	for i, url := range urls {
		if m.TellsPeers && url == OwnPeer {
			all[i] = etcd.Peer{URL: url, Members: m.List}
		}
	}
	return all
}

func (m *FakeMembers) HealthOf(_ context.Context, members []etcd.Member) []etcd.Health {
	var all []etcd.Health
	for _, e := range members {
		err := m.Down[e.Name]
		if e.Name == "" {
			err = errors.New("it has not started yet")
		}
		all = append(all, etcd.Health{Member: e, Answers: err == nil, Err: err})
	}
	return all
}

func (m *FakeMembers) MoveLeader(context.Context, etcd.Identity) (bool, error) { return false, nil }

// Withdraw finds no key.
func (m *FakeMembers) Withdraw(context.Context, string) (bool, error) { return false, nil }

func (m *FakeMembers) CaughtUp(context.Context, etcd.Identity) error { return nil }

func (m *FakeMembers) at(peer string) int {
	return slices.IndexFunc(m.List, func(e etcd.Member) bool { return e.PeerURL == peer })
}

func (m *FakeMembers) Join(_ context.Context, name, peer string) ([]etcd.Member, bool, error) {
	m.Did = append(m.Did, "join "+peer)
	if err := m.Fail["join"]; err != nil {
		return nil, false, err
	}
	added := m.at(peer) < 0
	if added {
		m.List = append(m.List, etcd.Member{ID: 9, PeerURL: peer, Learner: true})
	}
	m.name = name
	list := slices.Clone(m.List)
	list[m.at(peer)].Name = name
	return list, added, nil
}

func (m *FakeMembers) Promote(_ context.Context, peer string) error {
	m.Did = append(m.Did, "promote "+peer)
	if err := m.Fail["promote"]; err != nil {
		return err
	}
	i := m.at(peer)
	m.List[i].Name, m.List[i].Learner = m.name, false
	return nil
}

func (m *FakeMembers) Move(_ context.Context, id uint64, from []string, to string) (bool, error) {
	m.Did = append(m.Did, "move "+to)
	i := slices.IndexFunc(m.List, func(e etcd.Member) bool { return slices.Contains(from, e.PeerURL) && (id == 0 || e.ID == id) })
	if i >= 0 && m.Fail["move"] == nil {
		m.List[i].PeerURL = to
	}
	return i >= 0 && m.Fail["move"] == nil, m.Fail["move"]
}

func (m *FakeMembers) Leave(_ context.Context, peer string) (bool, error) {
	m.Did = append(m.Did, "leave "+peer)
	i := m.at(peer)
	if i >= 0 && m.Fail["leave"] == nil {
		m.List = slices.Delete(m.List, i, i+1)
	}
	return i >= 0, m.Fail["leave"]
}

// LoneMember is an etcd that can't hand over the lead.
type LoneMember struct{ etcd.Etcd }

func (LoneMember) MoveLeader(context.Context, etcd.Identity) (bool, error) { return false, nil }

func (LoneMember) Members(context.Context) ([]etcd.Member, error) {
	return []etcd.Member{{Name: "cp-1", PeerURL: OwnPeer}}, nil
}

func (m LoneMember) Health(ctx context.Context) ([]etcd.Health, error) {
	members, err := m.Members(ctx)
	return []etcd.Health{{Member: members[0], Answers: true}}, err
}
