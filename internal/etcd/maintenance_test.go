// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestCompact waits for each voter. An earlier run may have compacted as far.
func TestCompact(t *testing.T) {
	f, r := led(t, "a", "b", "c", "d")
	f.members[3].IsLearner = true
	for i := range 2 {
		if err := r.Compact(t.Context(), 40); err != nil || f.keys.compacted != 40 || f.keys.compactions != 3*(i+1) {
			t.Errorf("up to %d, %d members, %v", f.keys.compacted, f.keys.compactions, err)
		}
	}
	f.members[1].ClientURLs = []string{gone(t)}
	fact.Error(t, r.Compact(t.Context(), 41), "b", "connection refused")
}

// TestDefragment reaches no other member.
func TestDefragment(t *testing.T) {
	f, r := led(t, "a", "b", "c")
	if err := r.Defragment(t.Context(), peer("b")); err != nil || !slices.Equal(f.defragmented, []uint64{2}) {
		t.Errorf("defragmented %v, %v", f.defragmented, err)
	}
	f.before = func(call string) error {
		if call == "defragment" {
			return status.Error(codes.Unavailable, "transport is closing")
		}
		return nil
	}
	fact.Error(t, r.Defragment(t.Context(), peer("b")), "https://b.example:2380", "is closing")
	if len(f.defragmented) != 2 {
		t.Errorf("asked %d times: a broken connection does not say whether the member still rewrites its database", len(f.defragmented))
	}
	f.members[1].ClientURLs = f.members[0].ClientURLs
	fact.Error(t, r.Defragment(t.Context(), peer("b")), "member 1")
	fact.Error(t, r.Defragment(t.Context(), peer("z")), "https://z.example:2380")
}

// TestDisarm leaves the alarm CORRUPT, which no room in a database ends.
func TestDisarm(t *testing.T) {
	f := voters("a", "b", "c")
	for id, kind := range map[uint64]pb.AlarmType{1: pb.AlarmType_NOSPACE, 2: pb.AlarmType_CORRUPT, 3: pb.AlarmType_NOSPACE} {
		f.alarms = append(f.alarms, &pb.AlarmMember{MemberID: id, Alarm: kind})
	}
	r := f.serve(t, 10*time.Second)
	for range 2 {
		if err := r.Disarm(t.Context()); err != nil || len(f.alarms) != 1 || f.alarms[0].Alarm != pb.AlarmType_CORRUPT {
			t.Errorf("left %v, %v", f.alarms, err)
		}
	}
}

// TestLivePlan asks the members, and changes nothing.
func TestLivePlan(t *testing.T) {
	f, live := led(t, "a", "b", "c")
	f.status[2].DbSize, f.status[2].DbSizeInUse = 20, 10
	var did []Action
	p := NewLivePlan(func(a Action) { did = append(did, a) }, live)
	for _, change := range []func(context.Context) error{
		func(ctx context.Context) error { return p.Compact(ctx, 40) },
		func(ctx context.Context) error { return p.Defragment(ctx, peer("b")) },
		p.Disarm,
		func(ctx context.Context) error { _, err := p.Leave(ctx, peer("c")); return err },
	} {
		if err := change(t.Context()); err != nil {
			t.Error(err)
		}
	}
	want := []Action{{Verb: Compact}, {Verb: Rewrite, PeerURL: peer("b")}, {Verb: Disarm}, {Verb: Remove, PeerURL: peer("c")}}
	if !slices.Equal(did, want) || len(f.members) != 3 || f.defragmented != nil {
		t.Errorf("recorded %v", did)
	}
	members, err := p.Members(t.Context())
	all, other := p.Health(t.Context())
	if err != nil || other != nil || len(members) != 2 || len(all) != 2 || all[0].Status.Revision != 42 || all[1].Status.Size != 0 {
		t.Errorf("%v, %v; %+v, %v", members, err, all, other)
	}
	if _, err := p.HashKV(t.Context(), 1); err == nil {
		t.Error("it reads whole databases")
	}
}
