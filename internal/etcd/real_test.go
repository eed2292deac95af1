// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/test/fact"
)

// once answers the first call of this name with err.
func once(call string, err error) func(string) error {
	return func(now string) error {
		if now == call && err != nil {
			answer := err
			err = nil
			return answer
		}
		return nil
	}
}

// faults are temporary errors of etcd or of the connection.
var faults = map[string]error{
	"no leader":           rpctypes.ErrGRPCNoLeader,
	"leader changed":      rpctypes.ErrGRPCLeaderChanged,
	"timeout":             rpctypes.ErrGRPCTimeout,
	"unhealthy":           rpctypes.ErrGRPCUnhealthy,
	"not enough started":  rpctypes.ErrGRPCMemberNotEnoughStarted,
	"learner asked":       rpctypes.ErrGRPCNotSupportedForLearner,
	"connection lost":     status.Error(codes.Unavailable, "connection reset"),
	"one member too slow": status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
	"the server gives up": status.Error(codes.Canceled, "context canceled"),
	"stopped meanwhile":   rpctypes.ErrGRPCStopped,
}

// TestMembershipGrowsAndShrinks makes each step fail with each fault, either before it's executed, or afterwards, so that only
// the answer is lost. The result is the same, and nothing is done twice.
func TestMembershipGrowsAndShrinks(t *testing.T) {
	var group sync.WaitGroup // each case spends most of its time waiting
	defer group.Wait()
	for name, fault := range faults {
		for _, call := range []string{"list", "add", "promote", "remove"} {
			for when, set := range map[string]func(*fakeCluster){
				"before": func(f *fakeCluster) { f.before = once(call, fault) },
				"after":  func(f *fakeCluster) { f.after = once(call, fault) },
			} {
				group.Go(func() {
					t.Run(name+" "+when+" "+call, func(t *testing.T) {
						f := voters("a", "b")
						f.notReady = 2
						set(f)
						liveOnce(t, f, f.serve(t, time.Minute))
					})
				})
			}
		}
	}
}

// liveOnce adds a member, promotes it, and removes it again.
func liveOnce(t *testing.T, f *fakeCluster, r *Real) {
	t.Helper()
	ctx := t.Context()
	members, added, err := r.Join(ctx, "c", peer("c"))
	if err != nil || !added || len(members) != 3 {
		t.Fatalf("join: %v, added %t, %v", members, added, err)
	}
	if c := byPeer(members, peer("c")); !c.Learner || c.Name != "c" {
		t.Errorf("joined as %+v", c)
	}
	if _, added, err = r.Join(ctx, "c", peer("c")); err != nil || added {
		t.Errorf("join again: added %t, %v", added, err)
	}
	for range 2 {
		if err := r.Promote(ctx, peer("c")); err != nil {
			t.Fatalf("promote: %v", err)
		}
	}
	if members, err = r.Members(ctx); err != nil || byPeer(members, peer("c")).Learner {
		t.Errorf("after the promotion: %v, %v", members, err)
	}
	if removed, err := r.Leave(ctx, peer("c")); err != nil || !removed {
		t.Errorf("leave: %t, %v", removed, err)
	}
	if removed, err := r.Leave(ctx, peer("c")); err != nil || removed {
		t.Errorf("leave again: %t, %v", removed, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.members) != 2 || f.next != 1 {
		t.Errorf("%d members are left after %d were added; calls: %v", len(f.members), f.next, f.calls)
	}
}

// TestSideBySide lets four members join at once. etcd accepts one learner at a time.
func TestSideBySide(t *testing.T) {
	f := voters("a")
	r := f.serve(t, 20*time.Second)
	var group sync.WaitGroup
	for _, name := range []string{"b", "c", "d", "e"} {
		group.Go(func() {
			if _, added, err := r.Join(t.Context(), name, peer(name)); err != nil || !added {
				t.Errorf("%s: added %t, %v", name, added, err)
			}
			if err := r.Promote(t.Context(), peer(name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	group.Wait()
	members, err := r.Members(t.Context())
	if err != nil || len(members) != 5 || slices.ContainsFunc(members, func(m Member) bool { return m.Learner }) {
		t.Errorf("members %v, %v", members, err)
	}
}

// TestWaitsForLearner: etcd's log must not get a request for a second learner, even if it's refused.
func TestWaitsForLearner(t *testing.T) {
	f, looks := stuck(), 0
	f.before = func(call string) error {
		switch learner := f.members[1]; {
		case call == "list":
			looks++
			learner.IsLearner = looks < 3
		case call == "add" && learner.IsLearner:
			t.Error("a second learner was asked for")
		}
		return nil
	}
	r := f.serve(t, 20*time.Second)
	if _, added, err := r.Join(t.Context(), "c", peer("c")); err != nil || !added {
		t.Errorf("added %t, %v", added, err)
	}
}

func TestRefusals(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	tests := map[string]struct {
		cluster *fakeCluster
		do      func(ctx context.Context, r *Real) error
		want    []string
	}{
		"a name that another member has": {voters("a", "c"), join("https://elsewhere.example:2380"), []string{`"c"`, "https://c.example:2380"}},
		"a member of another name":       {voters("a", "b"), join(peer("b")), []string{"https://b.example:2380", `"b", not "c"`}},
		"promoting what is no member":    {voters("a"), func(ctx context.Context, r *Real) error { return r.Promote(ctx, peer("z")) }, []string{peer("z"), "removed"}},
		"a learner that never ends":      {stuck(), join(peer("c")), []string{peer("b"), "a learner"}},
		"no permission": {func() *fakeCluster { f := voters("a"); f.before = func(string) error { return denied }; return f }(),
			join(peer("c")), []string{"permission denied"}},
		"a learner that never catches up": {func() *fakeCluster { f := stuck(); f.notReady = 1 << 30; return f }(),
			func(ctx context.Context, r *Real) error { return r.Promote(ctx, peer("b")) }, []string{"in sync"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fact.Error(t, test.do(t.Context(), test.cluster.serve(t, 10*time.Second)), test.want...)
		})
	}
}

func join(url string) func(context.Context, *Real) error {
	return func(ctx context.Context, r *Real) error {
		_, _, err := r.Join(ctx, "c", url)
		return err
	}
}

// stuck has a learner whose node is gone.
func stuck() *fakeCluster {
	f := voters("a", "b")
	f.members[1].IsLearner = true
	return f
}

func TestLastMemberStays(t *testing.T) {
	f := voters("a")
	if removed, err := f.serve(t, time.Minute).Leave(t.Context(), peer("a")); err != nil || removed || len(f.members) != 1 {
		t.Errorf("removed %t, %v", removed, err)
	}
}

// TestRefusesRemoval: this decides whether a node's data may be deleted.
func TestRefusesRemoval(t *testing.T) {
	for name, test := range map[string]struct {
		fault error
		want  bool
	}{
		"unhealthy":          {rpctypes.ErrGRPCUnhealthy, true},
		"not enough started": {rpctypes.ErrGRPCMemberNotEnoughStarted, true},
		"no leader":          {rpctypes.ErrGRPCNoLeader, false},
		"not reached":        {status.Error(codes.Unavailable, "connection reset"), false},
		"no permission":      {rpctypes.ErrGRPCPermissionDenied, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := voters("a", "b")
			f.before = func(call string) error {
				if call == "remove" {
					return test.fault
				}
				return nil
			}
			removed, err := f.serve(t, 10*time.Second).Leave(t.Context(), peer("b"))
			if err == nil || removed || RefusesRemoval(err) != test.want {
				t.Errorf("removed %t, refused %t, want %t: %v", removed, RefusesRemoval(err), test.want, err)
			}
		})
	}
}

// silent is an address that accepts connections but never answers; gone refuses them.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "https://" + listener.Addr().String()
}

func gone(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	return "https://" + listener.Addr().String()
}

// TestEndpointsThatDoNotAnswer: several hanging endpoints take no longer than one. Asked one by one, they'd use up the time.
func TestEndpointsThatDoNotAnswer(t *testing.T) {
	r := voters("a").serve(t, 3*answerTimeout, gone(t), silent(t), silent(t), silent(t), silent(t))
	if members, err := r.Members(t.Context()); err != nil || len(members) != 1 || members[0].Cluster != fakeClusterID {
		t.Errorf("%v, %v", members, err)
	}
}

// TestTimedOut: members that refuse connections are gone; one that's silent may only be slow, whatever the others say.
func TestTimedOut(t *testing.T) {
	for name, endpoints := range map[string][]string{"late": {gone(t), silent(t), gone(t)}, "": {gone(t), gone(t)}} {
		r := voters("a").serve(t, 200*time.Millisecond)
		r.options.Endpoints = func(context.Context) ([]string, error) { return endpoints, nil }
		for _, ask := range []func() error{
			func() error { _, err := r.Members(t.Context()); return err },
			func() error { _, err := r.Health(t.Context()); return err },
		} {
			if err := ask(); err == nil || TimedOut(err) != (name == "late") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// TestWrongCertificates doesn't wait for a certificate that one side will never trust, unless another member may still answer.
func TestWrongCertificates(t *testing.T) {
	const limit = 30 * time.Second
	strangers := voters("a")
	strangers.clients = x509.NewCertPool()
	for name, test := range map[string]struct {
		r    *Real
		want string
	}{
		"of the member": {voters("a").serve(t, limit), "unknown authority"},
		"of the client": {strangers.serve(t, limit), "remote error: tls: "},
	} {
		if name == "of the member" {
			dir := t.TempDir()
			certificate(t, dir)
			test.r.options.CA = filepath.Join(dir, "crt")
		}
		start := time.Now()
		_, err := test.r.Members(t.Context())
		if fact.Error(t, err, test.want, "slipway certs check-expiration"); time.Since(start) > limit/2 {
			t.Errorf("%s: %v after %s", name, err, time.Since(start))
		}
	}
	r := strangers.serve(t, 5*time.Second, gone(t))
	_, err := r.Members(t.Context())
	var gaveUp *retry.Error
	if fact.Error(t, err, "connection refused"); !errors.As(err, &gaveUp) {
		t.Errorf("with another member: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints []string
		want      []string
	}{
		"no endpoint":    {nil, []string{"no endpoint"}},
		"not encrypted":  {[]string{"http://192.0.2.1:2379"}, []string{"http://192.0.2.1:2379", "URL"}},
		"no URL":         {[]string{"192.0.2.1"}, []string{"192.0.2.1", "URL"}},
		"no certificate": {[]string{"https://192.0.2.1:2379"}, []string{"credentials", "/nonexistent"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := voters("a").serve(t, time.Minute)
			r.options.Endpoints = func(context.Context) ([]string, error) { return test.endpoints, nil }
			if name == "no certificate" {
				r.options.CA = "/nonexistent"
			}
			_, err := r.Members(t.Context())
			fact.Error(t, err, test.want...)
		})
	}
}

// TestPlain: an external etcd may serve its clients without TLS, or without their certificates.
func TestPlain(t *testing.T) {
	f := voters("a")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(f.listen(t, listener, f), "https:", "http:", 1)
	r := New(Options{
		Endpoints: func(context.Context) ([]string, error) { return []string{url}, nil },
		ReadFile:  os.ReadFile, Timeout: time.Minute, Plain: true,
	})
	f.leader, f.members[0].ClientURLs = 1, []string{url}
	if all, err := r.Health(t.Context()); err != nil || len(all) != 1 || all[0].Err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	r.options.Plain = false
	r.options.Timeout = time.Second
	if _, err := r.Members(t.Context()); err == nil {
		t.Error("no error from a control plane's etcd without TLS")
	}

	r = voters("a").serve(t, time.Minute)
	r.options.Cert, r.options.Key, r.options.Plain = "", "", true
	if members, err := r.Members(t.Context()); err != nil || len(members) != 1 {
		t.Errorf("without a client certificate: %v, %v", members, err)
	}
}
