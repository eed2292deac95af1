// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"
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
		{name: "relative path", file: one + context + "users: [{name: u, user: {tokenFile: t}}]\n", creds: "tokenFile: /etc/t"},
		{name: "user is missing", file: one + context},
		{name: "CA in a file", file: "clusters:\n- name: a\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority: ca.crt}\n"},
		{name: "two clusters", file: one + "- {name: b, cluster: {server: 'https://b'}}\n", says: "describes 2 clusters"},
		{name: "context leads nowhere", file: one + "contexts: [{name: c, context: {cluster: b}}]\ncurrent-context: c\n", says: "names a cluster that it does not describe"},
		{name: "no CA", file: "clusters: [{name: a, cluster: {server: 'https://b'}}]\n", says: "no certificate in PEM form"},
		{name: "malformed CA", file: strings.Replace(one, data, base64.StdEncoding.EncodeToString([]byte(someCert)), 1), says: "certificate 1 is malformed"},
		{name: "no TLS", file: strings.Replace(one, "https:", "http:", 1), says: "no https URL"},
		{name: "garbage", file: "hunter2", says: "not a kubeconfig"},
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
				if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %q", err, tt.says)
				}
			case err != nil || found.Server != "https://192.0.2.1:6443" || len(found.CA) != 1:
				t.Errorf("found %+v, %v", found, err)
			case !strings.Contains(string(creds), tt.creds) || tt.creds == "" && creds != nil:
				t.Errorf("credentials %s, want %q", creds, tt.creds)
			}
		})
	}
}

// TestByURL: the host's own CAs must vouch for the server.
func TestByURL(t *testing.T) {
	f := newFake(t)
	_, _, err := ByFile(t.Context(), File{Location: "https://" + f.start(t) + "/x", Progress: quiet, pace: quick})
	if err == nil || !strings.Contains(err.Error(), "not signed by a certificate that is trusted") {
		t.Error(err)
	}
	_, _, err = ByFile(t.Context(), File{Location: "/nope", ReadFile: os.ReadFile, Progress: quiet})
	if err == nil || !strings.Contains(err.Error(), "discovery file: ") {
		t.Error(err)
	}
}
