// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

func TestProbe(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintln(w, "[-]etcd failed")
		fmt.Fprint(w, strings.Repeat("x", 1<<20))
	})
	mux.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an answer might still be heard
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // not to be used

	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	for name, test := range map[string]struct {
		probe host.Probe
		want  string
	}{
		"any certificate":   {host.Probe{URL: server.URL + "/ok"}, ""},
		"right CA":          {host.Probe{URL: server.URL + "/ok", CA: ca}, ""},
		"another name":      {host.Probe{URL: server.URL + "/ok", CA: ca, ServerName: "example.com"}, ""},
		"a wrong name":      {host.Probe{URL: server.URL + "/ok", CA: ca, ServerName: "other.example.org"}, "other.example.org"},
		"CA without":        {host.Probe{URL: server.URL + "/ok", CA: []byte("x")}, "CA bundle"},
		"client cert wrong": {host.Probe{URL: server.URL + "/ok", ClientCert: ca, ClientKey: ca}, "client certificate"},
		"no body":           {host.Probe{URL: server.URL + "/teapot"}, "GET " + server.URL + "/teapot: 418 I'm a teapot"},
		"redirect":          {host.Probe{URL: server.URL + "/moved"}, "GET " + server.URL + "/moved: 302 Found"},
		"refused":           {host.Probe{URL: "http://127.0.0.1:1/healthz"}, "connection refused"},
		"no URL":            {host.Probe{URL: "::"}, "probe: "},
	} {
		err := New().Probe(t.Context(), test.probe)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %s", name, err, test.want)
		}
	}

	var answer *host.ProbeError
	err := New().Probe(t.Context(), host.Probe{URL: server.URL + "/bad"})
	if !errors.As(err, &answer) || answer.Status != 500 || !strings.HasPrefix(answer.Body, "[-]etcd failed\nxxx") || len(answer.Body) != probeBody {
		t.Errorf("error %.200v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := New().Probe(ctx, host.Probe{URL: server.URL + "/hangs"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestProbeReusesConnections saves the server its signatures when nothing is verified. A verified server must show its present
// certificate each time.
func TestProbeReusesConnections(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "[-]etcd failed", http.StatusInternalServerError)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	h := New()
	defer h.Close()
	for i, p := range []host.Probe{{URL: server.URL}, {URL: server.URL}, {URL: server.URL + "/healthz"}, {URL: server.URL, CA: ca}, {URL: server.URL, CA: ca}} {
		var answer *host.ProbeError
		if err := h.Probe(t.Context(), p); !errors.As(err, &answer) || answer.Status != http.StatusInternalServerError {
			t.Errorf("probe %d: %v", i, err)
		}
	}
	if got := connections.Load(); got != 3 {
		t.Errorf("%d connections, want one for all probes that verify nothing, and one for each of the two others", got)
	}
}

// TestProbeNoticesRestarts: a kept connection hides neither that a server has ended nor that another one has started.
func TestProbeNoticesRestarts(t *testing.T) {
	h := New()
	defer h.Close()
	listen := func(address string, status int) *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server.Listener.Close()
		server.Listener = listener
		server.StartTLS()
		return server
	}
	first := listen("127.0.0.1:0", http.StatusOK)
	address := first.Listener.Addr().String()
	probe := host.Probe{URL: "https://" + address + "/livez"}
	if err := h.Probe(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := h.Probe(t.Context(), probe); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the server has ended: %v", err)
	}
	second := listen(address, http.StatusTeapot)
	defer second.Close()
	var answer *host.ProbeError
	if err := h.Probe(t.Context(), probe); !errors.As(err, &answer) || answer.Status != http.StatusTeapot {
		t.Errorf("from the next server: %v", err)
	}
}

// The CA must have issued the server's certificate.
func TestProbeWrongCA(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(t.Output(), "", 0)
	server.StartTLS()
	defer server.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	var unknown x509.UnknownAuthorityError
	if err := New().Probe(t.Context(), host.Probe{URL: server.URL, CA: ca}); !errors.As(err, &unknown) {
		t.Errorf("error %v", err)
	}
}

func TestFetch(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/version":
			_, _ = w.Write([]byte(`{"etcdserver":"3.6.8"}`))
		case "/large":
			_, _ = w.Write(bytes.Repeat([]byte("x"), fetchBody+1))
		case "/moved":
			http.Redirect(w, r, "/version", http.StatusFound)
		default:
			http.Error(w, "no such page", http.StatusNotFound)
		}
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, tt := range []struct {
		name   string
		probe  host.Probe
		size   int
		status int    // of a *ProbeError
		err    string // part of another error
	}{
		{"answer", host.Probe{URL: "/version", CA: ca}, 22, 0, ""},
		{"any certificate", host.Probe{URL: "/version"}, 22, 0, ""},
		{"cut", host.Probe{URL: "/large", CA: ca}, fetchBody, 0, ""},
		{"not found", host.Probe{URL: "/nothing", CA: ca}, 0, http.StatusNotFound, ""},
		{"redirect", host.Probe{URL: "/moved", CA: ca}, 0, http.StatusFound, ""},
		{"no CA in the bundle", host.Probe{URL: "/version", CA: []byte("x")}, 0, 0, "CA bundle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.probe.URL = server.URL + tt.probe.URL
			body, err := New().Fetch(t.Context(), tt.probe)
			if len(body) != tt.size {
				t.Errorf("%d bytes, want %d", len(body), tt.size)
			}
			var answer *host.ProbeError
			switch {
			case tt.status != 0:
				if !errors.As(err, &answer) || answer.Status != tt.status {
					t.Errorf("got error %v, want status %d", err, tt.status)
				}
			case tt.err == "" && err != nil, tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestDate(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = []string{at.Format(http.TimeFormat)}
		if r.URL.Path == "/none" {
			w.Header()["Date"] = nil
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	if got, err := New().Date(t.Context(), host.Probe{URL: server.URL}); err != nil || !got.Equal(at) {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := New().Date(t.Context(), host.Probe{URL: server.URL + "/none"}); err == nil {
		t.Errorf("without a date: %s", got)
	}
}

// TestAnswers: who refuses a connection is there, too.
func TestAnswers(t *testing.T) {
	h := NewAt(t.TempDir())
	defer h.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(listener.Addr().String())
	for _, state := range []string{"listens", "refuses"} {
		if there, err := h.Answers(t.Context(), at); err != nil || !there {
			t.Errorf("it %s: answers %t, %v", state, there, err)
		}
		_ = listener.Close()
	}
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if there, err := h.Answers(ended, at); err != nil || there {
		t.Errorf("silent until the deadline: answers %t, %v", there, err)
	}
	ended, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := h.Answers(ended, at); err == nil {
		t.Error("no error although nothing was sent")
	}
}
