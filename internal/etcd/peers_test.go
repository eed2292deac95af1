// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pkgerrors "github.com/pkg/errors"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/test/fact"
)

// The answer of etcd 3.6 at its peer URL.
const toldPeers = `[{"id":2,"peerURLs":["https://b.example:2380"],"name":"b","clientURLs":["https://b.example:2379"]},` +
	`{"id":18446744073709551615,"peerURLs":["https://c.example:2380"],"isLearner":true}]`

// peerServer is an etcd's peer URL; it knows its clients by their certificates.
func peerServer(t *testing.T, pair tls.Certificate, answer string, status int) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/members" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// TestPeers finds a running member at its peer URL, whatever it says, and nobody else.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	pair := certificate(t, dir)
	r := New(Options{CA: filepath.Join(dir, "crt"), Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), ReadFile: os.ReadFile})
	urls := []string{peerServer(t, pair, toldPeers, http.StatusOK), gone(t), peerServer(t, certificate(t, t.TempDir()), toldPeers, http.StatusOK),
		peerServer(t, pair, "something else", http.StatusInternalServerError), "http://127.0.0.1:1", "http" + strings.TrimPrefix(peerServer(t, pair, "", http.StatusOK), "https")}
	found := r.Peers(t.Context(), urls)
	want := []Member{{ID: 2, Name: "b", PeerURL: peer("b"), ClientURLs: []string{"https://b.example:2379"}}, {ID: 1<<64 - 1, PeerURL: peer("c"), Learner: true}}
	if diff := cmp.Diff(want, found[0].Members); diff != "" || found[0].Err != nil {
		t.Errorf("%v (-want +got):\n%s", found[0].Err, diff)
	}
	fact.Error(t, found[1].Err, "connection refused")
	fact.Error(t, found[2].Err, "certificate")
	fact.Error(t, found[4].Err, "http://127.0.0.1:1")
	for i, signs := range [][2]bool{{true, false}, {false, false}, {true, false}, {true, false}, {false, false}, {true, false}} {
		if got := [2]bool{found[i].Alive(), found[i].Silent()}; got != signs {
			t.Errorf("%s is alive, is silent: %t; want %t (%v)", urls[i], got, signs, found[i].Err)
		}
	}
	if found[3].Err != nil || found[3].Members != nil {
		t.Errorf("%+v", found[3])
	}
	for i, p := range found {
		if p.URL != urls[i] {
			t.Errorf("%d is of %s", i, p.URL)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found := r.Peers(ctx, urls[:1]); !errors.Is(found[0].Err, context.Canceled) {
		t.Errorf("canceled: %v", found[0].Err)
	}
	if found := NewPlan(nil).Peers(t.Context(), urls); len(found) != len(urls) || !errors.Is(found[0].Err, ErrNotAsked) {
		t.Errorf("a plan: %+v", found)
	}
}

// issued is a certificate from a CA that was valid for a time, in hours from now.
func issued(t *testing.T, ca tls.Certificate, from, until time.Duration) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, ca.Leaf.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.PrivateKey, Leaf: ca.Leaf}
}

// TestForeignPeers: what accepts connections at a peer URL is a stranger unless a certificate from etcd's CA shows otherwise, even one
// that has expired.
func TestForeignPeers(t *testing.T) {
	dir := t.TempDir()
	pair, other := certificate(t, dir), certificate(t, t.TempDir())
	r := New(Options{CA: filepath.Join(dir, "crt"), Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), ReadFile: os.ReadFile})
	named := func(id string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Etcd-Cluster-ID", id) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	for name, c := range map[string]struct {
		url     string
		foreign bool
	}{
		"a member":                      {peerServer(t, pair, toldPeers, http.StatusOK), false},
		"a member that cannot answer":   {peerServer(t, pair, "", http.StatusInternalServerError), false},
		"an expired certificate":        {peerServer(t, issued(t, pair, -50*time.Minute, -10*time.Minute), toldPeers, http.StatusOK), false},
		"another CA's":                  {peerServer(t, other, toldPeers, http.StatusOK), true},
		"another CA's, expired":         {peerServer(t, issued(t, other, -50*time.Minute, -10*time.Minute), toldPeers, http.StatusOK), true},
		"no TLS":                        {"http" + strings.TrimPrefix(peerServer(t, pair, "", http.StatusOK), "https"), true},
		"no TLS, and this cluster's ID": {named("1f"), false},
		"no TLS, and another cluster's": {named("2f"), true},
		"nothing that accepts":          {gone(t), false},
	} {
		if p := r.Peers(t.Context(), []string{c.url})[0]; p.Foreign(0x1f) != c.foreign {
			t.Errorf("%s is foreign: %t; cluster %x, stranger %t (%v)", name, !c.foreign, p.Cluster, p.Stranger, p.Err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if p := r.Peers(ctx, []string{silent(t)})[0]; p.Foreign(0x1f) {
		t.Errorf("a member that hangs is foreign (%v)", p.Err)
	}
}

// TestSilentPeers: only a host that doesn't answer at all is silent, and credentials that can't be used say nothing about it.
func TestSilentPeers(t *testing.T) {
	for _, c := range []struct {
		err           error
		alive, silent bool
	}{
		{nil, true, false},
		{pkgerrors.Wrap(dial.SilentError{Err: unix.EHOSTUNREACH}, "192.0.2.1:2380"), false, true},
		{pkgerrors.Wrap(unix.EHOSTUNREACH, "192.0.2.1:2380"), false, false}, // maybe a firewall
		{dial.RefusedError{Err: unix.EHOSTUNREACH}, false, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false, false},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, false, false}, // only the name's server is silent
		{pkgerrors.Wrap(AcceptedError{context.DeadlineExceeded}, "192.0.2.1:2380"), true, false},
		{ErrNotAsked, false, false},
	} {
		if p := (Peer{Err: c.err}); p.Alive() != c.alive || p.Silent() != c.silent {
			t.Errorf("%v: alive %t, silent %t", c.err, p.Alive(), p.Silent())
		}
	}
	r := New(Options{CA: "nothing", ReadFile: os.ReadFile})
	if p := r.Peers(t.Context(), []string{silent(t)})[0]; !errors.As(p.Err, new(CredentialsError)) || p.Alive() || p.Silent() {
		t.Errorf("without credentials: %v", p.Err)
	}
}

// TestSeveralPeerURLs: each of a member's peer URLs identifies it, and it's silent only if all are.
func TestSeveralPeerURLs(t *testing.T) {
	f := voters("a", "b", "c")
	f.members[1].PeerURLs = []string{peer("b"), peer("x")}
	r := f.serve(t, time.Minute)
	members, err := r.Members(t.Context())
	if err != nil || len(members) != 3 || !members[1].At(peer("x")) || members[0].At(peer("x")) || members[1].PeerURL != peer("b") {
		t.Errorf("%+v, %v", members, err)
	}
	if removed, err := r.Leave(t.Context(), peer("x")); err != nil || !removed || len(f.members) != 2 {
		t.Errorf("removed %t, %v", removed, err)
	}
	off, refuses, tls := Peer{Err: dial.SilentError{Err: unix.EHOSTUNREACH}}, Peer{Err: unix.ECONNREFUSED}, Peer{Err: AcceptedError{os.ErrDeadlineExceeded}}
	for i, c := range []struct {
		peers         []Peer
		alive, silent bool
	}{
		{[]Peer{off, off}, false, true},
		{[]Peer{off, refuses}, false, false},
		{[]Peer{off, refuses, tls}, true, false},
		{[]Peer{off, tls, {}}, true, false},
	} {
		if best := BestAnswer(c.peers); best.Alive() != c.alive || best.Silent() != c.silent {
			t.Errorf("%d: %v", i, best.Err)
		}
	}
}

// TestStoredMembers: a stopped etcd has its members in its database. An etcd that has the database open isn't disturbed.
func TestStoredMembers(t *testing.T) {
	database := edited(t, func(tx *bbolt.Tx) error {
		return tx.Bucket(membersBucket).Put([]byte("1"), []byte(`{"id":1,"peerURLs":["http://127.0.0.1:1"],"isLearner":true}`))
	})
	path := filepath.Join(t.TempDir(), "db")
	stored := func(data []byte) ([]Member, error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return StoredMembers(f)
	}
	database = database[:len(database)-sha256.Size]
	members, err := stored(database)
	want := []Member{{ID: 1, PeerURL: "http://127.0.0.1:1", Learner: true},
		{ID: 0x2e1259d415f2a040, Name: "cp-1", PeerURL: "http://127.0.0.1:23800", ClientURLs: []string{"http://127.0.0.1:23790"}}}
	if diff := cmp.Diff(want, members); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	damaged := bytes.Clone(database)
	copy(damaged[8192:], bytes.Repeat([]byte{0xff}, len(damaged)-8192))
	for name, data := range map[string][]byte{"empty": nil, "short": []byte("new"), "damaged": damaged} {
		if _, err := stored(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := os.WriteFile(path, database, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := StoredMembers(f); err != nil {
		t.Fatal(err)
	}
	running, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second}) // although f is still open
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	_, err = StoredMembers(f)
	if fact.Error(t, err, path); !errors.Is(err, ErrOpen) {
		t.Error(err)
	}
}
