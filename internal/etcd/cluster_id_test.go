// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestFormerClusterIsBack: a member of a former cluster gets no orders. This host's member decides which cluster counts, and without
// one, nothing happens.
func TestFormerClusterIsBack(t *testing.T) {
	ours, former := voters("a"), voters("a", "b")
	ours.cluster, former.cluster = 1, 2
	r := ours.serve(t, time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	former.tls = ours.tls
	url := former.listen(t, listener, former)
	r.options.Endpoints = func(context.Context) ([]string, error) { return []string{url, ours.url}, nil }
	r.options.OwnCluster = func() (uint64, error) { return 0, nil } // it may join
	address := listener.Addr().String()
	_, _, err = r.Join(t.Context(), "c", peer("c"))
	fact.Error(t, err, address)
	_, err = r.Health(t.Context())
	fact.Error(t, err, address)
	fact.Error(t, r.Compact(t.Context(), 1), address)

	var warned []string
	r.options.Own = func(context.Context) ([]string, error) { return []string{ours.url}, nil }
	r.options.Warn = func(message, _ string) { warned = append(warned, message) }
	if members, added, err := r.Join(t.Context(), "c", peer("c")); err != nil || !added || len(members) != 2 {
		t.Errorf("%v, %t, %v", members, added, err)
	}
	if all, err := r.Health(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	fact.List(t, warned, address)
	if slices.Contains(former.calls, "list") || len(former.members) != 2 {
		t.Errorf("the former cluster was asked: %q", former.calls)
	}
}

// TestOwnMemberIsSilent: while this host's member doesn't answer, its data decides which cluster counts. A former cluster that
// answers alone gets no orders.
func TestOwnMemberIsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		own   func() (uint64, error) // by the data
		facts []string               // of the error; none if the others are asked
	}{
		"another cluster's data": {func() (uint64, error) { return 1, nil }, []string{"127.0.0.1:"}},
		"the same cluster's":     {func() (uint64, error) { return 2, nil }, nil},
		"unreadable":             {func() (uint64, error) { return 0, errors.New("damaged") }, []string{"damaged"}},
		"no data":                {func() (uint64, error) { return 0, nil }, nil}, // as on a host that joins
	} {
		t.Run(name, func(t *testing.T) {
			others := voters("a", "b")
			others.cluster = 2
			own := gone(t)
			limit := time.Minute
			if len(c.facts) > 0 {
				limit = time.Second // it tries again until then
			}
			r := others.serve(t, limit, own)
			r.options.Own = func(context.Context) ([]string, error) { return []string{own}, nil }
			r.options.OwnCluster = c.own
			_, err := r.Health(t.Context())
			_, _, joined := r.Join(t.Context(), "c", peer("c"))
			if len(c.facts) > 0 {
				fact.Error(t, err, c.facts...)
				fact.Error(t, joined, c.facts...)
				if slices.Contains(others.calls, "list") {
					t.Errorf("the others were asked: %q", others.calls)
				}
				return
			}
			if err != nil || joined != nil {
				t.Errorf("%v, %v", err, joined)
			}
		})
	}
}

// TestSlowFormerMembers: once this host's member, or its data, has decided, a member that hasn't said in time which cluster it belongs to
// isn't asked, even if nobody else works.
func TestSlowFormerMembers(t *testing.T) {
	for name, stored := range map[string]bool{"this host's member answers": false, "its data": true} {
		t.Run(name, func(t *testing.T) {
			ours, former := voters("a"), voters("a", "b")
			ours.cluster, former.cluster = 1, 2
			r := ours.serve(t, 4*slowMemberDelay)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			former.tls = ours.tls
			url := former.listen(t, listener, former)
			own := ours.url
			if stored { // another member of the cluster is up
				own = gone(t)
			}
			r.options.Endpoints = func(context.Context) ([]string, error) { return []string{url, ours.url, own}, nil }
			r.options.Own = func(context.Context) ([]string, error) { return []string{own}, nil }
			r.options.OwnCluster = func() (uint64, error) { return 1, nil }
			former.before = func(call string) error {
				if call == "status" {
					time.Sleep(2 * slowMemberDelay)
				}
				return nil
			}
			ours.before = func(call string) error {
				if call == "list" {
					return status.Error(codes.Unavailable, "no leader")
				}
				return nil
			}
			if _, err := r.Leave(t.Context(), peer("b")); err == nil {
				t.Error("no error")
			}
			former.mu.Lock() // it may still be sleeping
			defer former.mu.Unlock()
			if slices.Contains(former.calls, "list") || len(former.members) != 2 {
				t.Errorf("the former cluster was asked: %q", former.calls)
			}
		})
	}
}

// TestSlowMembers: this host's member decides even if it's slower than others may be. A host that joins doesn't take the only cluster
// it sees for its own before all members could answer.
func TestSlowMembers(t *testing.T) {
	for name, joins := range map[string]bool{"this host's": false, "the other cluster's, of a host that joins": true} {
		t.Run(name, func(t *testing.T) {
			ours, former := voters("a"), voters("a", "b")
			ours.cluster, former.cluster = 1, 2
			r := ours.serve(t, time.Minute)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			former.tls = ours.tls
			url := former.listen(t, listener, former)
			r.options.Endpoints = func(context.Context) ([]string, error) { return []string{url, ours.url}, nil }
			r.options.OwnCluster = func() (uint64, error) { return 0, nil }
			if !joins {
				r.options.Own = func(context.Context) ([]string, error) { return []string{ours.url}, nil }
			}
			ours.before = func(call string) error {
				if call == "status" {
					time.Sleep(2 * slowMemberDelay)
				}
				return nil
			}
			members, _, err := r.Join(t.Context(), "c", peer("c"))
			if joins {
				fact.Error(t, err, listener.Addr().String())
			} else if err != nil || len(members) != 2 {
				t.Errorf("%v, %v", members, err)
			}
			if slices.Contains(former.calls, "list") {
				t.Errorf("the former cluster was asked: %q", former.calls)
			}
		})
	}
}
