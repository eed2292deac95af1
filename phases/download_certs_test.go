// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJoinExternalCA: a control plane that has all that its CAs sign needs none
// of their keys. What is absent and would have to be signed is named.
func TestJoinExternalCA(t *testing.T) {
	tests := []struct{ name, absent, key, err string }{
		{name: "all is here"},
		{name: "no certificate of the API server", absent: "pki/apiserver.crt",
			err: `certificate apiserver: there is no private key of its CA "ca" to sign with; have the owner of the CA issue it`},
		{name: "no certificate of etcd", absent: "pki/etcd/peer.crt",
			err: `certificate etcd-peer: there is no private key of its CA "etcd-ca" to sign with`},
		{name: "no kubeconfig file", absent: "scheduler.conf",
			err: `certificate scheduler.conf: there is no private key of its CA "ca" to sign with`},
		{name: "no CA", absent: "pki/front-proxy-ca.crt",
			err: "this host lacks files that all control planes share: /etc/kubernetes/pki/front-proxy-ca.crt, /etc/kubernetes/pki/front-proxy-ca.key; give"},
		{name: "no key of the service accounts", absent: "pki/sa.key",
			err: "this host lacks files that all control planes share: /etc/kubernetes/pki/sa.key; give"},
		{name: "an earlier download was cut off", key: someKey},
	}
	keys := []string{"/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/front-proxy-ca.key", "/etc/kubernetes/pki/etcd/ca.key"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := preparedPlane(t)
			gone := keys
			if tt.absent != "" {
				gone = append(gone[:len(gone):len(gone)], "/etc/kubernetes/"+tt.absent)
			}
			for _, path := range gone {
				if err := os.Remove(filepath.Join(s.root, path)); err != nil {
					t.Fatal(err)
				}
			}
			s.said.Reset()
			if err := s.discoverPlane(t, tt.key); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), s.Env, joinPlane(), Options{})
			if got := message(err); !strings.Contains(got, tt.err) || tt.err == "" && err != nil {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			warned := strings.Contains(s.said.String(), "[WARNING] not on this host, so taken to be kept elsewhere: "+keys[0])
			for _, path := range keys {
				if _, err := os.Stat(filepath.Join(s.root, path)); (err == nil) != (tt.key != "") {
					t.Errorf("%s: %v", path, err)
				}
			}
			if warned != (tt.key == "") {
				t.Errorf("said %q", s.said.String())
			}
		})
	}
}
