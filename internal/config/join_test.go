// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
)

const (
	someToken  = "abcdef.0123456789abcdef"
	otherToken = "fedcba.fedcba9876543210"
	somePin    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestLoadJoinFlags(t *testing.T) {
	tests := []struct {
		name  string
		flags Flags
		want  Discovery
	}{
		{"token for both", Flags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, CACertHashes: []string{somePin}},
			Discovery{BootstrapToken: &BootstrapTokenDiscovery{Token: someToken, APIServerEndpoint: "a:6443", CACertHashes: []string{somePin}}, TLSBootstrapToken: someToken}},
		{"own tokens", Flags{Given: []string{"token", "discovery-token", "discovery-token-unsafe-skip-ca-verification"}, Endpoint: "a:6443", Token: someToken, DiscoveryToken: otherToken, SkipCAVerification: true},
			Discovery{BootstrapToken: &BootstrapTokenDiscovery{Token: otherToken, APIServerEndpoint: "a:6443", UnsafeSkipCAVerification: true}, TLSBootstrapToken: someToken}},
		{"file", Flags{Given: []string{"discovery-file"}, DiscoveryFile: "/x"}, Discovery{File: &FileDiscovery{"/x"}}},
		{"file and token", Flags{Given: []string{"discovery-file", "token"}, DiscoveryFile: "/x", Token: someToken},
			Discovery{File: &FileDiscovery{"/x"}, TLSBootstrapToken: someToken}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := LoadJoin(nil, tt.flags, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, c.Discovery); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLoadJoinFaults(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\n")}
	tests := []struct {
		name  string
		src   *Source
		flags Flags
		want  string
	}{
		{"nothing", nil, Flags{}, "discovery: | bootstrapToken | file"},
		{"no address", nil, Flags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Token: someToken, CACertHashes: []string{somePin}},
			"discovery.bootstrapToken.apiServerEndpoint: | missing"},
		{"no pin", nil, Flags{Given: []string{"token"}, Endpoint: "a:6443", Token: someToken},
			"discovery.bootstrapToken.caCertHashes: | empty"},
		{"bad pin", nil, Flags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, CACertHashes: []string{"sha256:00"}},
			"--discovery-token-ca-cert-hash: | sha256: | 64"},
		{"bad token", nil, Flags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: "hunter2", CACertHashes: []string{somePin}}, "--token: "},
		{"two ways", nil, Flags{Given: []string{"token", "discovery-file", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, DiscoveryFile: "/x", CACertHashes: []string{somePin}},
			"discovery: bootstrapToken and file"},
		{"http", nil, Flags{Given: []string{"discovery-file"}, DiscoveryFile: "http://x/y"}, "--discovery-file: | https URL"},
		{"flag and file", file, Flags{Given: []string{"token", "config"}, Token: someToken}, "--token: | --config"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := LoadJoin(tt.src, tt.flags, testOptions())
			text := fmt.Sprint(err)
			if place, _, _ := strings.Cut(tt.want, " "); !strings.HasPrefix(text, place) {
				t.Errorf("got %q, want %q", text, tt.want)
			}
			fact.In(t, text, fact.Of(tt.want)...)
			if strings.Contains(text, "hunter2") {
				t.Errorf("the token is in %q", text)
			}
		})
	}
}

// TestLoadJoinFileAndAddress: with a file, the address isn't used, as in kubeadm. The user gets a warning.
func TestLoadJoinFileAndAddress(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\n")}
	_, warnings, err := LoadJoin(file, Flags{Given: []string{"config"}, Endpoint: "a:1"}, testOptions())
	fact.Error(t, err)
	fact.List(t, warnings, "a:1 | ignored | --config")
}

// TestLoadJoinFlagsOfControlPlane: users who give a certificate key want a control plane, and are warned that they get a worker.
func TestLoadJoinFlagsOfControlPlane(t *testing.T) {
	flags := Flags{Given: []string{"token", "discovery-token-ca-cert-hash", "certificate-key"}, Endpoint: "a:1",
		Token: someToken, CACertHashes: []string{somePin}, CertificateKey: strings.Repeat("0", 64)}
	_, warnings, err := LoadJoin(nil, flags, testOptions())
	fact.Error(t, err)
	fact.List(t, warnings, "--certificate-key: | ignored | --control-plane | worker")
	flags.Given, flags.ControlPlane = append(flags.Given, "control-plane"), true
	if _, warnings, err := LoadJoin(nil, flags, testOptions()); err != nil || len(warnings) > 0 {
		t.Errorf("%q, %v", warnings, err)
	}
}

func TestLoadJoinFileWithFlags(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\nnodeRegistration: {name: a, ignorePreflightErrors: [Swap]}\n")}
	c, _, err := LoadJoin(file, Flags{Given: []string{"node-name", "ignore-preflight-errors"}, NodeName: "b", IgnorePreflightErrors: []string{"Mem"}}, testOptions())
	if err != nil || c.NodeRegistration.Name != "b" || len(c.NodeRegistration.IgnorePreflightErrors) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}
