// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
)

const someCert = `-----BEGIN CERTIFICATE-----
MIIBVjCB/aADAgECAgEBMAoGCCqGSM49BAMCMA0xCzAJBgNVBAMTAmNhMB4XDTI2
-----END CERTIFICATE-----
`

func TestByFile(t *testing.T) {
	ca := authority{}.sign(t, asCA).pem()
	data := base64.StdEncoding.EncodeToString([]byte(ca))
	one := "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: " + data + "}\n"
	context := "contexts: [{name: c, context: {cluster: a, user: u}}]\ncurrent-context: c\n"
	tests := []struct {
		name, file string
		creds      string // a part of the credentials
		says       string
	}{
		{name: "cluster only", file: one},
		{name: "with a token", file: one + context + "users: [{name: u, user: {token: abc}}]\n", creds: "token: abc"},
		{name: "unknown fields", file: "colour: blue\n" + strings.Replace(one, "cluster: {", "cluster: {colour: blue, ", 1) + context +
			"users: [{name: u, user: {token: abc, colour: blue}, colour: blue}]\n", creds: "token: abc"},
		{name: "relative path", file: one + context + "users: [{name: u, user: {tokenFile: t}}]\n", creds: "tokenFile: /etc/t"},
		{name: "user is missing", file: one + context},
		{name: "CA in a file", file: "clusters:\n- name: a\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority: ca.crt}\n"},
		{name: "two clusters", file: one + "- {name: b, cluster: {server: 'https://b'}}\n", says: "2 clusters"},
		{name: "context leads nowhere", file: one + "contexts: [{name: c, context: {cluster: b}}]\ncurrent-context: c\n", says: "context | cluster"},
		{name: "context is missing", file: one + "current-context: c\n", says: `current context "c"`},
		{name: "no CA", file: "clusters: [{name: a, cluster: {server: 'https://b'}}]\n", says: "certificate-authority-data"},
		{name: "a CA that is none", file: strings.Replace(one, data, base64.StdEncoding.EncodeToString([]byte("x")), 1), says: "PEM"},
		{name: "malformed CA", file: strings.Replace(one, data, base64.StdEncoding.EncodeToString([]byte(someCert)), 1), says: "certificate 1"},
		{name: "no TLS", file: strings.Replace(one, "https:", "http:", 1), says: "https URL"},
		{name: "garbage", file: "hunter2", says: "kubeconfig"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read := func(path string) ([]byte, error) {
				switch path {
				case "/etc/d.conf":
					return []byte(tt.file), nil
				case "/etc/ca.crt":
					return []byte(ca), nil
				}
				return nil, os.ErrNotExist
			}
			found, creds, err := ByFile(t.Context(), File{Location: "/etc/d.conf", ReadFile: read, Progress: quiet})
			switch {
			case tt.says != "":
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %q", err, tt.says)
				}
				fact.Error(t, err, fact.Of(tt.says)...)
			case err != nil || found.Server != "https://192.0.2.1:6443" || len(found.CA) != 1:
				t.Errorf("found %+v, %v", found, err)
			case !strings.Contains(string(creds), tt.creds) || tt.creds == "" && creds != nil:
				t.Errorf("credentials %s, want %q", creds, tt.creds)
			}
		})
	}
}

// TestByURL: one of the host's CAs must have issued the server's certificate, and the file from the server must not name files or
// programs of this host. No output contains secrets from the URL.
func TestByURL(t *testing.T) {
	ca := base64.StdEncoding.EncodeToString([]byte(authority{}.sign(t, asCA).pem()))
	document := func(user string) string {
		return "clusters: [{name: a, cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: " + ca + "}}]\n" +
			"contexts: [{name: c, context: {cluster: a, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {" + user + "}}]\n"
	}
	tests := []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		alien  bool // the host doesn't trust the server's CA
		says   string
	}{
		{name: "right", answer: respond(200, document("token: abc"))},
		{name: "unknown CA", answer: respond(200, document("token: abc")), alien: true, says: "certificate | trusted"},
		{name: "a program", answer: respond(200, document("exec: {command: sh, apiVersion: v1}")), says: "files | programs"},
		{name: "a file", answer: respond(200, document("tokenFile: /etc/shadow")), says: "files | programs"},
		{name: "CA in a file", answer: respond(200, "clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: /etc/x}}]"), says: "certificate-authority-data"},
		{name: "403", answer: respond(403, ""), says: "403 Forbidden"},
		{name: "404", answer: respond(404, ""), says: "404 Not Found"},
		{name: "500", answer: respond(500, ""), says: "500 Internal Server Error"},
		{name: "garbage", answer: respond(200, "<html>"), says: "kubeconfig"},
		{name: "redirect to a server without TLS", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, says: "302 Found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.answer = tt.answer
			var told strings.Builder
			progress := func(format string, args ...any) { fmt.Fprintf(&told, format, args...) }
			how := File{Location: "https://user:hunter2@" + f.start(t) + "/x?token=hunter2", Progress: progress, pace: quick, roots: []*x509.Certificate{f.ca.cert}}
			if tt.alien {
				how.roots = []*x509.Certificate{authority{}.sign(t, asCA).cert}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			found, creds, err := ByFile(ctx, how)
			switch {
			case tt.says == "" && (err != nil || len(found.CA) != 1 || !strings.Contains(string(creds), "token: abc")):
				t.Errorf("found %+v, %v", found, err)
			case tt.says != "":
				if found.CA != nil {
					t.Errorf("trusts %+v", found)
				}
				fact.Error(t, err, fact.Of(tt.says)...)
			}
			if said := fmt.Sprint(told.String(), err); strings.Contains(said, "hunter2") || strings.Contains(said, "user:") {
				t.Errorf("the output has the URL's secrets: %s", said)
			}
		})
	}
}

// TestMalformedURL: a malformed URL isn't taken for a file either, because an error would show it as a path.
func TestMalformedURL(t *testing.T) {
	read := func(path string) ([]byte, error) {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	for _, location := range []string{"https://user:hunter2#@127.0.0.1/x", "https://user:hunter2/@127.0.0.1/x", "https://user:hunter2%zz@127.0.0.1/x"} {
		_, _, err := ByFile(t.Context(), File{Location: location, ReadFile: read, Progress: quiet})
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
		fact.Error(t, err, "https://[redacted]:", "URL", "malformed")
	}
}

func TestShown(t *testing.T) {
	for location, want := range map[string]string{
		"/etc/discovery.conf":                       "/etc/discovery.conf",
		"a@b?c=d":                                   "a@b?c=d",
		"https://h:8443/x":                          "https://h:8443/x",
		"https://user:hunter2@h:8443/x":             "https://h:8443/x",
		"https://hunter2@h/x#hunter2":               "https://h/x",
		"https://h/x?a=1&X-Amz-Signature=hunter2":   "https://h/x?a=[redacted]&X-Amz-Signature=[redacted]",
		"https://h/x?hunter2":                       "https://h/x?[redacted]",
		"https://user:12/hunter2@h/x":               "https://[redacted]",
		"https://user:hunt#er2@h/x":                 "https://[redacted]",
		"https://user:hunt%er2@h/x?token=hunter2@h": "https://[redacted]",
	} {
		if got := Shown(location); got != want {
			t.Errorf("%s is shown as %s, want %s", location, got, want)
		}
	}
}

// TestProxyAnswer: a proxy that refuses to connect is named, without its password.
func TestProxyAnswer(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			t.Errorf("%s", r.Method)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	client := newClient(nil, true)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("somebody", "hunter2")
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(u)
	_, err = fetch(t.Context(), client, "https://192.0.2.1:6443/")
	fact.Error(t, err, u.Host, "192.0.2.1:6443", "403", "NO_PROXY")
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	client.CloseIdleConnections()
}
