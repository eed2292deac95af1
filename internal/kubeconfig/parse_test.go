// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"strings"
	"testing"
)

func TestServerFaults(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"token: [SECRET", "not a kubeconfig in YAML form"},
		{"apiVersion: v1\nkind: Config\n", "has 0 clusters and no current context; expected exactly one cluster"},
		{"clusters: [{name: a}, {name: b}]", "has 2 clusters and no current context"},
		{"apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: a}]", `the current-context of the kubeconfig, "x", does not exist in it`},
		{"clusters: [{name: a, cluster: {server: 'https://x'}}]", "certificate-authority-data: the file is empty"},
	} {
		if _, _, err := Server([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v, want %s", c.data, err, c.want)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	for _, c := range []struct{ user, cert, file, fault string }{
		{"{client-certificate-data: YWJj}", "abc", "", ""},
		{"{client-certificate: /var/lib/kubelet/x.pem}", "", "/var/lib/kubelet/x.pem", ""},
		{"{token: SECRET}", "", "", "the user of the kubeconfig has no client certificate"},
	} {
		cert, file, err := ClientCertificate([]byte(head + "users: [{name: u, user: " + c.user + "}]\n"))
		if string(cert) != c.cert || file != c.file || (err != nil) != (c.fault != "") || err != nil && err.Error() != c.fault {
			t.Errorf("%s: %q %q %v", c.user, cert, file, err)
		}
	}
}
