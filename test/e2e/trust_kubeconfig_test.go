// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
)

// followsUserKubeconfig moves admin.conf away and finds the cluster with the user's settings: a list of files that
// only together have a whole context, and ~/.kube/config. These also take precedence over admin.conf.
func followsUserKubeconfig(m machine) {
	const token = "abcdef.0123456789abcdef"
	m.must("slipway", "token", "create", token)
	m.splitKubeconfig("/root/a", "/root/b")
	m.must("mv", "/etc/kubernetes/admin.conf", "/root/moved.conf")

	list := []string{"env", "HOME=/nowhere", "KUBECONFIG=/root/missing:/root/a:/root/b", "slipway"}
	home := []string{"env", "-u", "KUBECONFIG", "HOME=/root/home", "slipway"}
	m.must("mkdir", "-p", "/root/home/.kube")
	m.must("cp", "/root/moved.conf", "/root/home/.kube/config")
	for _, as := range [][]string{list, home} {
		if out := m.must(append(as, "token", "list")...); !strings.Contains(out, token) {
			m.Errorf("%s token list prints %q", strings.Join(as, " "), out)
		}
		made := m.must(append(as, "token", "create", "--print-join-command")...)
		if !strings.HasPrefix(made, "slipway join 192.168.99.11:6443 --token ") {
			m.Errorf("%s token create prints %q", strings.Join(as, " "), made)
		}
		m.must(append(as, "token", "delete", strings.Fields(made)[4])...)
	}

	m.must("mv", "/root/moved.conf", "/etc/kubernetes/admin.conf")
	m.must("kubectl", "--kubeconfig", "/root/b", "config", "set-cluster", "kubernetes", "--server", "https://user:hunter2 x@192.0.2.1")
	out, err := m.try(append(list, "token", "list")...)
	if err == nil || !strings.Contains(out, "/root/a:/root/b") || strings.Contains(out, "hunter2") {
		m.Errorf("with an invalid server URL in KUBECONFIG: %v, %s", err, out)
	}
	if out := m.must(append(list, "token", "list", "--kubeconfig", "/etc/kubernetes/admin.conf")...); !strings.Contains(out, token) {
		m.Errorf("--kubeconfig does not take precedence over KUBECONFIG: %q", out)
	}
}

// splitKubeconfig splits admin.conf into one file with the context and the user, and one with the cluster.
func (m machine) splitKubeconfig(user, cluster string) {
	m.Helper()
	for path, without := range map[string][]string{user: {"clusters"}, cluster: {"users", "contexts", "current-context"}} {
		m.must("cp", "/etc/kubernetes/admin.conf", path)
		for _, what := range without {
			m.must("kubectl", "--kubeconfig", path, "config", "unset", what)
		}
	}
}
