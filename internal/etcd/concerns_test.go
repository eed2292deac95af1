// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
)

// three returns healthy members a, which leads, b and c.
func three() []Health {
	var all []Health
	for i, name := range []string{"a", "b", "c"} {
		all = append(all, Health{
			Member:  Member{ID: uint64(i + 1), Name: name, PeerURL: peer(name), ClientURLs: []string{"https://" + name + ".example:2379"}},
			Answers: true, Status: Status{Version: "3.7.0", Leader: 1, Committed: 9000, Applied: 9000, Revision: 42, Size: 30 << 20, InUse: 20 << 20, Quota: 2 << 30},
		})
	}
	return all
}

func TestConcerns(t *testing.T) {
	for name, test := range map[string]struct {
		change func(all []Health)
		want   []string // name and subject
		facts  []string // of the first
	}{
		"healthy":     {func([]Health) {}, nil, nil},
		"an old etcd": {func(all []Health) { all[1].Status.Quota = 0 }, nil, nil},
		"no answer": {func(all []Health) { all[1] = Health{Member: all[1].Member, Err: errors.New("connection refused")} },
			[]string{"etcd-down b"}, []string{"connection refused", "slipway diagnose", "remove 2"}},
		"one without a leader": {func(all []Health) { all[2].Err = errors.New("no leader") }, []string{"etcd-down c"}, []string{"no leader"}},
		"no quorum": {func(all []Health) {
			all[0].Status.Leader, all[0].Err = 0, errors.New("no leader")
			all[1] = Health{Member: all[1].Member, Err: errors.New("connection refused")}
			all[2] = all[1]
		}, []string{"etcd-quorum-lost etcd", "etcd-down b", "etcd-down b"}, []string{"0", "3", "2"}},
		"an alarm that only others know": {func(all []Health) {
			all[0].Status.Alarms = []Alarm{{2, "NOSPACE"}}
			all[1].Status.Size = 2 << 30 // its quota is no second concern
		}, []string{"etcd-space b"}, []string{"NOSPACE"}},
		"damage comes first": {func(all []Health) {
			all[0].Status.Alarms = []Alarm{{1, "NOSPACE"}, {3, "CORRUPT"}}
		}, []string{"etcd-corrupt c", "etcd-space a"}, []string{"CORRUPT", "--hashkv"}},
		"a former member's":            {func(all []Health) { all[1].Status.Alarms = []Alarm{{9, "NOSPACE"}} }, []string{"etcd-space etcd"}, []string{"NOSPACE", "`slipway etcd defrag`"}},
		"a former one's damage":        {func(all []Health) { all[1].Status.Alarms = []Alarm{{9, "CORRUPT"}} }, []string{"etcd-corrupt etcd"}, []string{"CORRUPT"}},
		"a former and a present one's": {func(all []Health) { all[1].Status.Alarms = []Alarm{{9, "NOSPACE"}, {2, "NOSPACE"}} }, []string{"etcd-space b"}, nil},
		"another alarm":                {func(all []Health) { all[0].Status.Alarms = []Alarm{{2, "OTHER"}} }, nil, nil},
		"below the limit":              {func(all []Health) { all[2].Status.Size = 2<<30*8/10 - 1 }, nil, nil},
		"near its quota": {func(all []Health) { all[2].Status.Size = 2<<30*8/10 + 1 },
			[]string{"etcd-quota c"}, []string{"1638", "2048", "20", "--quota-backend-bytes"}},
		"a learner": {func(all []Health) { all[2].Learner = true; all[2].Status.Applied = 1 }, []string{"etcd-learner c"}, nil},
		"a learner that never started": {func(all []Health) {
			all[2] = Health{Member: Member{ID: 3, PeerURL: peer("c"), Learner: true}, Err: errors.New("not started")}
		}, []string{"etcd-not-started " + peer("c")}, []string{"remove 3"}},
		"a voter that never started": {func(all []Health) {
			all[2] = Health{Member: Member{ID: 3, PeerURL: peer("c")}, Err: errors.New("not started")}
		}, []string{"etcd-not-started " + peer("c")}, []string{"vote", "remove 3"}},
		"a little behind": {func(all []Health) { all[1].Status.Applied = 4000 }, nil, nil},
		"far behind":      {func(all []Health) { all[1].Status.Applied = 3999 }, []string{"etcd-lag b"}, []string{"5001", "3999", "9000"}},
		"far behind by the leader's count": {func(all []Health) {
			all[1].Status.Applied, all[1].Status.Committed = 10, 10
		}, []string{"etcd-lag b"}, []string{"8990"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := three()
			test.change(all)
			found := Concerns(all)
			var got []string
			for _, f := range found {
				got = append(got, f.Name+" "+f.Subject)
				if f.Severity != fault.Broken || f.Remedy == "" {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Fatalf("found %q, want %q", got, test.want)
			}
			if len(found) > 0 {
				fact.In(t, found[0].Message+" "+found[0].Remedy, test.facts...)
			}
			ExternalRemedies(found)
			for _, f := range found {
				if rest := strings.ReplaceAll(f.Remedy, "slipway etcd status", ""); rest == "" || strings.Contains(rest, "slipway") {
					t.Errorf("of an external etcd: %s", f)
				}
			}
		})
	}
}

// TestCorruptRemedy: while the alarm stands, no host can join, so it's disarmed before.
func TestCorruptRemedy(t *testing.T) {
	remedy := CorruptFinding("").Remedy
	reset, disarm, join := strings.Index(remedy, "`slipway reset`"), strings.Index(remedy, "`etcdctl alarm disarm`"), strings.LastIndex(remedy, "join")
	if reset < 0 || disarm < reset || join < disarm {
		t.Error(remedy)
	}
}

// TestCorruptAlone: the reset of a single voter would remove the cluster's only data.
func TestCorruptAlone(t *testing.T) {
	for _, of := range []uint64{1, 9} { // its own, and a former member's
		all := three()[:1]
		all[0].Status.Alarms = []Alarm{{of, "CORRUPT"}}
		found := Concerns(all)
		if len(found) != 1 || found[0].Name != Corrupt {
			t.Fatalf("found %v", found)
		}
		fact.In(t, found[0].Remedy, "`etcdctl alarm disarm`")
		fact.NotIn(t, found[0].Remedy, "slipway reset")
	}
}

// TestHashKV asks each member for the same revision.
func TestHashKV(t *testing.T) {
	f, r := led(t, "a", "b", "c")
	f.hashes = map[uint64]uint32{1: 7, 2: 7, 3: 8}
	f.members[1].ClientURLs = []string{gone(t)}
	all, err := r.HashKV(t.Context(), 40)
	if err != nil || len(all) != 3 || all[0].Hash != 7 || all[0].Compacted != 30 || all[1].Err == nil || all[2].Hash != 8 || f.hashedTo != 40 {
		t.Fatalf("%+v, %v, up to %d", all, err, f.hashedTo)
	}
	if !Differ(all) || Differ(all[:2]) || !Comparable(all) {
		t.Error("8 is as good as 7, or a member that does not answer differs")
	}
	all[2].Compacted = 35
	if Differ(all) || Comparable(all) {
		t.Error("hashes since different compactions were compared")
	}
	f.before = func(string) error { return status.Error(codes.Internal, "out of order") }
	if _, err := r.HashKV(t.Context(), 40); err == nil {
		t.Error("no error without members")
	}
}

func TestCommonRevision(t *testing.T) {
	all := three()
	all[1].Status.Revision, all[2].Status = 40, Status{}
	if got := CommonRevision(all); got != 40 {
		t.Errorf("revision %d", got)
	}
	if got := CommonRevision(all[2:]); got != 0 {
		t.Errorf("of a silent member: revision %d", got)
	}
}
