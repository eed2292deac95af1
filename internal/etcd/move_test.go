// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestMove gives a member another peer URL once, even if the answer is lost or the cluster has no leader for a moment.
func TestMove(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := voters("a", "b", "c")
			f.members[1].PeerURLs = append(f.members[1].PeerURLs, peer("x")) // stays
			f.before, f.after = once("update", fault), once("update", fault)
			r := f.serve(t, time.Minute)
			id := f.members[1].ID // so that "a", which is at a former address, too, stays there
			for _, first := range []bool{true, false} {
				if moved, err := r.Move(t.Context(), id, []string{peer("earlier"), peer("a"), peer("b")}, peer("moved")); err != nil || moved != first {
					t.Fatalf("moved %t, %v", moved, err)
				}
			}
			members, err := r.Members(t.Context())
			if b := byPeer(members, peer("moved")); err != nil || b == nil || b.Name != "b" || !b.At(peer("x")) || len(members) != 3 || byPeer(members, peer("b")) != nil {
				t.Errorf("members %v, %v", members, err)
			}
		})
	}
}

// TestMoveRefuses a member that doesn't exist, and another one's place.
func TestMoveRefuses(t *testing.T) {
	r := voters("a", "b").serve(t, time.Minute)
	for name, test := range map[string]struct {
		id              uint64
		from, to, names string
	}{
		"no member":          {0, "x", "y", peer("a")},
		"other's URL":        {0, "a", "b", "b"},
		"other's member":     {77, "a", "y", "member 4d"},
		"other's at the new": {77, "x", "b", "member 4d"},
	} {
		moved, err := r.Move(t.Context(), test.id, []string{peer(test.from)}, peer(test.to))
		if moved || err == nil {
			t.Fatalf("%s: moved %t, %v", name, moved, err)
		}
		fact.In(t, err.Error(), test.names)
	}
}
