// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPortHolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: os.Getpid(), Name: filepath.Base(exe)}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("not tried on %s: %v", address, err) // a host may lack IPv6
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if p, found := New().PortHolder(port); !found || p != want {
			t.Errorf("%s: %+v, %v, want %+v", address, p, found, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if p, found := New().PortHolder(port); found {
			t.Errorf("%s: still held by %+v after it was closed", address, p)
		}
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
		probe  Probe
		size   int
		status int    // of a *ProbeError
		err    string // part of another error
	}{
		{"answer", Probe{URL: "/version", CA: ca}, 22, 0, ""},
		{"any certificate", Probe{URL: "/version"}, 22, 0, ""},
		{"cut", Probe{URL: "/large", CA: ca}, fetchBody, 0, ""},
		{"not found", Probe{URL: "/nothing", CA: ca}, 0, http.StatusNotFound, ""},
		{"redirect", Probe{URL: "/moved", CA: ca}, 0, http.StatusFound, ""},
		{"no CA in the bundle", Probe{URL: "/version", CA: []byte("x")}, 0, 0, "the CA bundle holds no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.probe.URL = server.URL + tt.probe.URL
			body, err := New().Fetch(t.Context(), tt.probe)
			if len(body) != tt.size {
				t.Errorf("%d bytes, want %d", len(body), tt.size)
			}
			var answer *ProbeError
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
