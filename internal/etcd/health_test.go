// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestHealth asks each member separately.
func TestHealth(t *testing.T) {
	f := voters("a", "b", "c", "d", "e")
	f.cluster = 7
	r := f.serve(t, 30*time.Second, silent(t))
	for i, url := range []string{f.url, f.url, gone(t), silent(t)} { // at b's address, a answers
		f.members[i].ClientURLs = []string{url}
	}
	var known []Health
	for _, test := range []struct {
		leader uint64
		want   map[string]string
	}{
		{1, map[string]string{"a": "", "b": "member 1", "c": "connection refused", "d": "deadline exceeded", "e": "not started"}},
		{0, map[string]string{"a": "no leader", "b": "member 1", "c": "connection refused", "d": "deadline exceeded", "e": "not started"}},
	} {
		f.leader = test.leader
		all, err := r.Health(t.Context())
		if err != nil || len(all) != len(test.want) {
			t.Fatalf("%v, %v", all, err)
		}
		known = all
		for _, m := range all {
			want := test.want[m.Name]
			if got := fmt.Sprint(m.Err); !strings.Contains(got, want) || want == "" && m.Err != nil || m.Answers != (m.Name < "c") || m.Answers != (m.ServedCluster == 7) {
				t.Errorf("leader %d: %s answers %t, of cluster %x: %s, want %q", test.leader, m.Name, m.Answers, m.ServedCluster, got, want)
			}
		}
	}
	of := r.HealthOf(t.Context(), []Member{known[2].Member, known[0].Member})
	if of[0].Name != "c" || of[0].Answers || of[1].Name != "a" || !of[1].Answers {
		t.Errorf("of c and a: %+v", of)
	}
	r = voters("a").serve(t, 5*time.Second)
	r.options.Endpoints = func(context.Context) ([]string, error) { return []string{gone(t)}, nil }
	if all, err := r.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("of nobody: %v, %v", all, err)
	}
}

func TestQuorumWithout(t *testing.T) {
	down := errors.New("down")
	member := func(name string, learner bool, err error) Health {
		return Health{Member: Member{Name: name, PeerURL: peer(name), Learner: learner}, Err: err}
	}
	for _, test := range []struct {
		all  []Health
		want bool
	}{
		{[]Health{member("a", false, nil), member("b", false, nil), member("c", false, nil)}, true},
		{[]Health{member("a", false, down), member("b", false, nil), member("c", false, nil)}, true},
		{[]Health{member("a", false, nil), member("b", false, nil), member("c", false, down)}, false},
		{[]Health{member("a", false, nil), member("b", false, nil), member("c", true, down)}, true},
		{[]Health{member("a", false, nil), member("b", false, down), member("c", true, nil)}, false},
		{[]Health{member("a", false, nil)}, false},
	} {
		if got := QuorumWithout(test.all, peer("a")); got != test.want {
			t.Errorf("without a, %v: %t", test.all, got)
		}
	}
}

func TestStanding(t *testing.T) {
	down := errors.New("connection refused")
	a, b, c := Health{Member: Member{Name: "a", PeerURL: peer("a")}}, Health{Member: Member{Name: "b"}}, Health{Member: Member{PeerURL: "https://c:2380"}, Err: down}
	for _, test := range []struct {
		all        []Health
		works, not string
	}{
		{[]Health{a, c}, "none", "https://c:2380"},
		{[]Health{a, b}, "b", ""},
		{[]Health{b, a, b}, "b, b", ""},
		{[]Health{a}, "none", ""},
		{[]Health{c, b}, "b", "https://c:2380"},
	} {
		works, not, _ := strings.Cut(DescribeHealth(test.all, peer("a")), "; ")
		if fact.In(t, works, test.works); test.not != "" {
			fact.In(t, not, test.not, "not", "(connection refused)")
		}
		if fact.NotIn(t, works+not, peer("a")); test.not == "" && not != "" {
			t.Errorf("%v: %q", test.all, not)
		}
	}
}

// TestWithStanding keeps the error, which callers check, and adds nothing if there's nobody to ask.
func TestWithStanding(t *testing.T) {
	cause := errors.New("no leader")
	err := WithHealth(t.Context(), NewPlan(func(Action) {}, Member{Name: "a", PeerURL: peer("a")}), cause)
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	fact.Error(t, err, "no leader", "members, a")
	if err := WithHealth(t.Context(), NewPlan(func(Action) {}), cause); !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("without members: %v", err)
	}
}
