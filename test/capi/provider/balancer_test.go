// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// controlPlane is an API server's double that answers with its name.
type controlPlane struct {
	ready  atomic.Bool
	server *httptest.Server
}

func newControlPlane(t *testing.T, name string) *controlPlane {
	t.Helper()
	p := &controlPlane{}
	p.ready.Store(true)
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/readyz" && !p.ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(p.server.Close)
	return p
}

// balance serves a balancer whose backends a and b are doubles, and returns it with its address.
func balance(t *testing.T, planes map[string]*controlPlane) (*TCPBalancer, string) {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		there, err := url.Parse(planes[host].server.URL)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, there.Host)
	}
	b := NewBalancer("6443", dial)
	b.client.Timeout = time.Minute // on a slow machine, too
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b, listener.Addr().String()
}

// open opens a connection through the balancer, and returns what answers on it.
func open(t *testing.T, address string) (*tls.Conn, string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, ""
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, ask(t, conn)
}

func ask(t *testing.T, conn *tls.Conn) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://endpoint/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		return ""
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	name, _ := io.ReadAll(res.Body)
	return string(name)
}

// TestBalancer: only API servers that are ready get connections, in turn; one that has failed several checks loses those it has.
func TestBalancer(t *testing.T) {
	planes := map[string]*controlPlane{"a": newControlPlane(t, "a"), "b": newControlPlane(t, "b")}
	b, address := balance(t, planes)
	if _, name := open(t, address); name != "" {
		t.Errorf("without control planes, %q answers", name)
	}
	b.Set("a", "b")
	b.Check(t.Context())
	conns := map[string]*tls.Conn{}
	for range planes {
		conn, name := open(t, address)
		conns[name] = conn
	}
	if conns["a"] == nil || conns["b"] == nil {
		t.Fatalf("the connections went to %v", conns)
	}
	planes["b"].ready.Store(false)
	for range failuresToEnd {
		b.Check(t.Context())
	}
	if name := ask(t, conns["b"]); name != "" {
		t.Errorf("%s still answers", name)
	}
	if name := ask(t, conns["a"]); name != "a" {
		t.Errorf("the connection to a ended: %q", name)
	}
	for range planes {
		if _, name := open(t, address); name != "a" {
			t.Errorf("%q answers, want a", name)
		}
	}
	planes["b"].ready.Store(true)
	b.Set("b")
	if name := ask(t, conns["a"]); name != "" {
		t.Errorf("%s still answers, although it was removed", name)
	}
	b.Check(t.Context())
	if _, name := open(t, address); name != "b" {
		t.Errorf("%q answers, want b", name)
	}
}

// TestFailedChecks: an address keeps its connections, and gets new ones, until its third failed check in a row.
func TestFailedChecks(t *testing.T) {
	b := NewBalancer("6443", nil)
	b.Set("a")
	conn, other := net.Pipe()
	t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
	if b.track("a", conn, true) || len(b.backends["a"].conns) > 0 {
		t.Error("an address that isn't ready has kept a connection")
	}
	b.set("a", true)
	if !b.track("a", conn, true) {
		t.Fatal("a ready address has kept no connection")
	}
	for check, ready := range []bool{false, false, true, false, false} {
		b.set("a", ready)
		if b.next() != "a" || isClosed(conn) {
			t.Errorf("check %d has ended a connection", check)
		}
	}
	b.set("a", false)
	if b.next() != "" || !isClosed(conn) {
		t.Error("three failed checks have ended nothing")
	}
}

// isClosed reports whether this side has closed a pipe.
func isClosed(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }
