// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/test/fact"
)

// resolvedConf is where systemd-resolved keeps the name servers.
const resolvedConf = "/run/systemd/resolve/resolv.conf"

// runsResolved has what systemd-resolved keeps. The other machines don't have it.
func (m machine) runsResolved() {
	m.Helper()
	m.must("mkdir", "-p", "/run/systemd/resolve")
	m.must("cp", "/etc/resolv.conf", resolvedConf)
}

// keepsHostFacts: the first node's Pods use its name servers, and the cluster's configuration doesn't say where they are.
func (m machine) keepsHostFacts() {
	m.Helper()
	if here := m.must("cat", "/var/lib/kubelet/config.yaml"); !strings.Contains(here, "resolvConf: "+resolvedConf) {
		m.Errorf("the kubelet's configuration of the first node:\n%s", here)
	}
	if text := m.storedText("kubelet-config", "kubelet"); strings.Contains(text, "resolvConf") {
		m.Errorf("kubelet-config has\n%s", text)
	}
}

// correctsHostFacts: a worker joins a cluster whose kubelet-config has another node's path, as earlier versions have stored it,
// and runs Pods. One that can't create a Pod's sandbox is named.
func (m machine) correctsHostFacts(w machine, args []string) {
	m.Helper()
	before := m.storedText("kubelet-config", "kubelet")
	m.editStored("kubelet-config", "kubelet", func(text string) string { return text + "resolvConf: " + resolvedConf + "\n" })
	w.must("mkdir", "-p", "/root/patches")
	w.write("/root/patches/kubeletconfiguration.yaml", "resolvConf: /none/resolv.conf\n")
	join := append([]string{"slipway", "join"}, args...)
	out, err := w.try(append(join, "--patches", "/root/patches", "--ignore-preflight-errors=ResolvConf")...)
	if err == nil {
		m.Errorf("join with name servers that don't exist succeeded:\n%s", out)
	}
	fact.In(m, out, "pod-sandbox", "/none/resolv.conf", w.node.Name())
	w.reset()
	m.kubectl("delete", "node", w.node.Name())

	if out, err = w.try(join...); err != nil {
		m.Fatalf("join: %v\n%s", err, out)
	}
	fact.In(m, out, "[WARNING]", "ConfigMap kube-system/kubelet-config", "resolvConf", resolvedConf, "/etc/resolv.conf")
	w.eventually("a Pod on the worker", readyLimit, func() error {
		if out := w.must("ctr", "-n", "k8s.io", "tasks", "ls", "-q"); strings.TrimSpace(out) == "" {
			return errors.New("nothing runs")
		}
		return nil
	})
	m.editStored("kubelet-config", "kubelet", func(string) string { return before })
	w.reset()
	w.must("rm", "-r", "/root/patches")
	m.kubectl("delete", "node", w.node.Name())
}
