// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

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
	address := listener.Addr().String()
	_, _, err = r.Join(t.Context(), "c", peer("c"))
	fact.Error(t, err, address, "2 clusters")
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
