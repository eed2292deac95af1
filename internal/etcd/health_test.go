// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// healths is what is wrong with each member, by name.
func healths(t *testing.T, r *Real) map[string]string {
	t.Helper()
	all, err := r.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, h := range all {
		found[h.Name] = ""
		if h.Fault != nil {
			found[h.Name] = h.Fault.Error()
		}
	}
	return found
}

// TestHealth asks each member at its own address.
func TestHealth(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	f := voters("a", "b", "dead", "new", "odd")
	r := f.serve(t, time.Minute)
	here, err := r.options.Endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.members[0].ClientURLs, f.members[1].ClientURLs = here, here
	f.members[2].ClientURLs = []string{"https://" + gone.Addr().String()}
	f.members[4].ClientURLs = []string{"http://192.0.2.1:2379"}
	got := healths(t, r)
	for name, want := range map[string]string{"a": "", "b": "", "dead": "connection refused", "new": "it has never started", "odd": "is no client URL"} {
		if text, listed := got[name]; !listed || !strings.Contains(text, want) || (text == "") != (want == "") {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
}

// TestHealthWithoutQuorum: a member that is up and follows no leader is not
// healthy, and the others are still known.
func TestHealthWithoutQuorum(t *testing.T) {
	f := voters("a", "b")
	r := f.serve(t, time.Minute)
	here, err := r.options.Endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.members[0].ClientURLs, f.members[1].ClientURLs = here, here
	f.before = func(call string) error {
		if call == "list" {
			return rpctypes.ErrGRPCNoLeader
		}
		return nil
	}
	for name, fault := range healths(t, r) {
		if !strings.Contains(fault, "no leader") {
			t.Errorf("%s: %q", name, fault)
		}
	}
	f.before = func(string) error { return rpctypes.ErrGRPCPermissionDenied }
	if all, err := r.Health(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "list the members of etcd: ") {
		t.Errorf("%v, error %v", all, err)
	}
}
