// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
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

// TestServerAt: a relative name begins in the file's directory, and a missing CA isn't a missing kubeconfig file.
func TestServerAt(t *testing.T) {
	const file = "clusters: [{name: a, cluster: {server: 'https://x', certificate-authority: %s}}]"
	for _, c := range []struct{ name, read, fault string }{
		{"/pki/ca.crt", "/pki/ca.crt", "certificate-authority | /pki/ca.crt | empty"},
		{"pki/ca.crt", "/etc/kubernetes/pki/ca.crt", "certificate-authority | /etc/kubernetes/pki/ca.crt | empty"},
		{"../gone.crt", "/etc/gone.crt", "certificate-authority | /etc/gone.crt | not exist"},
	} {
		read := ""
		_, _, err := ServerAt("/etc/kubernetes/x.conf", fmt.Appendf(nil, file, c.name), func(path string) ([]byte, error) {
			if read = path; strings.Contains(path, "gone") {
				return nil, fs.ErrNotExist
			}
			return nil, nil
		})
		if read != c.read || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: read %s, %v", c.name, read, err)
		}
		fact.Error(t, err, fact.Of(c.fault)...)
	}
	_, _, err := Server(fmt.Appendf(nil, file, "/etc/shadow"))
	fact.Error(t, err, "certificate-authority-data:")
}

func TestAbsolute(t *testing.T) {
	const file = "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: %s}}]\n" +
		"users: [{name: u, user: {client-certificate: %s, client-key: %s, tokenFile: %s}}]\n"
	there := fmt.Appendf(nil, file, "/k/ca", "/k/pki/c", "/c", "/k/t")
	got, err := Absolute("/k/x.conf", fmt.Appendf(nil, file, "ca", "pki/c", "../c", "./t"))
	if err != nil {
		t.Fatal(err)
	}
	fact.In(t, string(got), "certificate-authority: /k/ca\n", "client-certificate: /k/pki/c\n", "client-key: /c\n", "tokenFile: /k/t\n")
	if same, err := Absolute("/elsewhere", there); err != nil || string(same) != string(there) {
		t.Errorf("%v\n%s", err, same)
	}
	_, err = Absolute("/x", []byte("token: [SECRET"))
	fact.Error(t, err, "YAML")
	fact.NotIn(t, err.Error(), "SECRET")
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
