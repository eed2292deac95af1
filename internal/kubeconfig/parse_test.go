// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

func TestServerFaults(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"token: [SECRET", "kubeconfig | YAML"},
		{"apiVersion: v1\nkind: Config\n", "0 clusters | one cluster"},
		{"clusters: [{name: a}, {name: b}]", "2 clusters"},
		{"apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: a}]", `current-context | "x"`},
		{"clusters: [{name: a, cluster: {server: 'https://x'}}]", "certificate-authority-data: | empty"},
	} {
		_, _, err := Server([]byte(c.data))
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v, want %s", c.data, err, c.want)
		}
		fact.Error(t, err, fact.Of(c.want)...)
	}
}

// TestEndpoint: cluster-info has no context, and another server changes nothing else.
func TestEndpoint(t *testing.T) {
	const file = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '%s', certificate-authority: /ca}}]\n"
	for server, want := range map[string]string{
		"https://API.example.org:6443": "api.example.org:6443",
		"https://api.example.org":      "api.example.org:443",
		"https://[fd00::1]:6443":       "[fd00::1]:6443",
		"api.example.org":              "",
		"https://x:SECRET@%zz":         "",
	} {
		got, err := Endpoint(fmt.Appendf(nil, file, server))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", server, got, err)
		}
	}
	moved, err := AtServer(fmt.Appendf(nil, file, "https://a:1"), "https://b:2")
	if got, wrong := Endpoint(moved); err != nil || wrong != nil || got != "b:2" || !strings.Contains(string(moved), "certificate-authority: /ca") {
		t.Errorf("%v, %v\n%s", err, wrong, moved)
	}
}

func TestClientCertificate(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	for _, c := range []struct{ user, cert, file, fault string }{
		{"{client-certificate-data: YWJj}", "abc", "", ""},
		{"{client-certificate: /var/lib/kubelet/x.pem}", "", "/var/lib/kubelet/x.pem", ""},
		{"{token: SECRET}", "", "", "user | no client | certificate"},
		{"{exec: {command: SECRET}}", "", "", "user | no client | certificate"},
		{"{}", "", "", "user | no client | certificate"},
	} {
		cert, file, err := ClientCertificate([]byte(head + "users: [{name: u, user: " + c.user + "}]\n"))
		if string(cert) != c.cert || file != c.file {
			t.Errorf("%s: %q %q %v", c.user, cert, file, err)
		}
		fact.Error(t, err, fact.Of(c.fault)...)
		if has := errors.Is(err, ErrOtherCredentials); has != strings.Contains(c.user, "SECRET") {
			t.Errorf("%s: other credentials: %v", c.user, has)
		}
	}
}
