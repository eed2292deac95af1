// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/test/fact"
)

// led creates members that follow the first, each with its own address.
func led(t *testing.T, names ...string) (*fakeCluster, *Real) {
	t.Helper()
	f := voters(names...)
	f.keys = &fakeKeys{}
	r := f.serve(t, time.Minute)
	f.status = map[uint64]*pb.StatusResponse{}
	for _, m := range f.members {
		f.status[m.ID] = &pb.StatusResponse{Leader: 1, RaftIndex: 100, RaftAppliedIndex: 90 + m.ID}
	}
	f.serveMembers(t)
	return f, r
}

func TestMoveLeader(t *testing.T) {
	lost := status.Error(codes.Unavailable, "transport is closing")
	for name, test := range map[string]struct {
		from   string
		change func(f *fakeCluster)
		leader uint64 // afterwards
	}{
		"the voter that has applied most takes over": {"a", func(*fakeCluster) {}, 3},
		"another": {"a", func(f *fakeCluster) { f.status[2].RaftAppliedIndex = 99 }, 2},
		"the newest version": {"a", func(f *fakeCluster) {
			f.status[1].Version, f.status[2].Version, f.status[3].Version = "3.6.8", "3.10.0", "3.7.0"
		}, 2},
		"a follower":                     {"b", func(*fakeCluster) {}, 1},
		"not a member":                   {"z", func(*fakeCluster) {}, 1},
		"without a learner":              {"a", func(f *fakeCluster) { f.members[2].IsLearner = true }, 2},
		"without one that is down":       {"a", func(f *fakeCluster) { f.members[2].ClientURLs = nil }, 2},
		"without one that has no leader": {"a", func(f *fakeCluster) { f.status[3].Leader = 0 }, 2},
		"no other voter":                 {"a", func(f *fakeCluster) { f.members[1].IsLearner, f.members[2].ClientURLs = true, nil }, 1},
		"a single member":                {"a", func(f *fakeCluster) { f.members = f.members[:1] }, 1},
		"the answer is lost":             {"a", func(f *fakeCluster) { f.after = once("move", lost) }, 3},
		"it fails at first":              {"a", func(f *fakeCluster) { f.before = once("move", lost) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := led(t, "a", "b", "c")
			test.change(f)
			moved, err := r.MoveLeader(t.Context(), At(peer(test.from)))
			if err != nil || moved != (test.leader != 1) || f.status[1].Leader != test.leader {
				t.Errorf("moved %t, %v; the leader is %d, want %d", moved, err, f.status[1].Leader, test.leader)
			}
			if asked := slices.Contains(f.calls, "move"); asked != (test.leader != 1) {
				t.Errorf("calls %v", f.calls)
			}
		})
	}
}

func TestMoveLeaderFails(t *testing.T) {
	f, r := led(t, "a", "b")
	f.before = func(call string) error {
		if call == "move" {
			return status.Error(codes.PermissionDenied, "no")
		}
		return nil
	}
	moved, err := r.MoveLeader(t.Context(), At(peer("a")))
	if fact.Error(t, err, peer("a"), "leader", "PermissionDenied"); moved {
		t.Error("moved")
	}
}

// TestCaughtUp names each obstacle; each goes away after some looks.
func TestCaughtUp(t *testing.T) {
	for name, test := range map[string]struct {
		set, clear func(f *fakeCluster)
		says       string // facts, each after "; "
	}{
		"it lags":             {func(*fakeCluster) {}, func(f *fakeCluster) { f.status[2].RaftAppliedIndex = 100 }, "92; 100 entries"},
		"the others go on":    {func(*fakeCluster) {}, func(f *fakeCluster) { f.status[1].RaftIndex, f.status[2].RaftAppliedIndex = 500, 101 }, "92; 100 entries"},
		"a learner":           {func(f *fakeCluster) { f.members[1].IsLearner, f.status[2].RaftAppliedIndex = true, 100 }, func(f *fakeCluster) { f.members[1].IsLearner = false }, "a learner"},
		"it has no leader":    {func(f *fakeCluster) { f.status[2].Leader, f.status[2].RaftAppliedIndex = 0, 100 }, func(f *fakeCluster) { f.status[2].Leader = 1 }, "no leader"},
		"it is not running":   {func(f *fakeCluster) { f.status[2].Header.MemberId, f.status[2].RaftAppliedIndex = 9, 100 }, func(f *fakeCluster) { f.status[2].Header.MemberId = 2 }, "member 9"},
		"the leader is alone": {func(f *fakeCluster) { f.status[1].Header.MemberId, f.status[2].RaftAppliedIndex = 9, 100 }, func(f *fakeCluster) { f.status[1].Header.MemberId = 1 }, "the leader; not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := led(t, "a", "b")
			test.set(f)
			var err error
			said := func(fact string) bool { return err != nil && strings.Contains(err.Error(), fact) }
			facts := append(strings.Split(test.says, "; "), peer("b"))
			for r.options.Timeout = time.Second; !all(facts, said) && r.options.Timeout < time.Minute; r.options.Timeout *= 4 {
				err = r.CaughtUp(t.Context(), At(peer("b"))) // on a busy machine, a second may not be enough for a single look
			}
			fact.Error(t, err, facts...)
			r.options.Timeout = time.Minute
			looks := 0
			f.before = func(call string) error {
				if looks++; call == "list" && looks > 6 {
					test.clear(f)
				}
				return nil
			}
			if err := r.CaughtUp(t.Context(), At(peer("b"))); err != nil || looks <= 6 {
				t.Errorf("error %v after %d looks", err, looks)
			}
		})
	}
	_, r := led(t, "a")
	fact.Error(t, r.CaughtUp(t.Context(), At(peer("z"))), peer("z"), "a member", "removed")
}

func all(facts []string, said func(string) bool) bool {
	return !slices.ContainsFunc(facts, func(fact string) bool { return !said(fact) })
}

func TestStatus(t *testing.T) {
	f, r := led(t, "a", "b")
	*f.status[1] = pb.StatusResponse{
		Header: f.status[1].Header, Version: "3.6.8", StorageVersion: "3.6.0", Leader: 1, RaftIndex: 11, RaftAppliedIndex: 10,
		DbSize: 30, DbSizeQuota: 40,
		// A message's text has one space or two, at random.
		Errors: []string{"memberID:2  alarm:NOSPACE", "memberID:1 alarm:CORRUPT ", "etcdserver: no leader", ""},
	}
	want := Status{Version: "3.6.8", Leader: 1, Committed: 11, Applied: 10, Revision: 42, Size: 30, Quota: 40,
		Alarms: []Alarm{{2, "NOSPACE"}, {1, "CORRUPT"}}}
	all, err := r.Health(t.Context())
	if err != nil || len(all) != 2 || !all[0].Leads() || all[1].Leads() {
		t.Fatalf("%+v, %v", all, err)
	}
	if diff := cmp.Diff(want, all[0].Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	f.status[2].Header.MemberId = 9
	if all, err = r.Health(t.Context()); err != nil || fmt.Sprint(all[1].Status) != fmt.Sprint(Status{}) {
		t.Errorf("of another's member: %+v, %v", all[1], err)
	}
}
