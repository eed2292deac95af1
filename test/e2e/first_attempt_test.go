// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/test/fact"
)

// failsAtFirst runs init with contradictory settings, which is refused before anything is written, and then with a typo and
// another endpoint. The next init corrects both.
func (m machine) failsAtFirst() {
	m.Helper()
	for _, c := range []struct{ cluster, field string }{
		{"apiServer: {extraArgs: [{name: authorization-mode, value: RBAC}]}", "apiServer.extraArgs[0].value"},
		{"apiServer: {extraArgs: [{name: anonymous-auth, value: 'false'}]}", "apiServer.extraArgs[0].value"},
		{"controlPlaneEndpoint: fd00::5:6443", "controlPlaneEndpoint"},
	} {
		m.write("/root/slipway.yaml", document("", podSubnet+"\n"+c.cluster))
		out, err := m.try("slipway", "init", "--config=/root/slipway.yaml")
		if err == nil || !strings.Contains(out, "/root/slipway.yaml:") || !strings.Contains(out, c.field) {
			m.Errorf("%s: %v\n%s", c.cluster, err, out)
		}
	}
	m.must("sh", "-c", "mv /etc/resolv.conf /etc/resolv.conf.away")
	m.write("/root/slipway.yaml", document("", podSubnet+"\ncontrolPlaneEndpoint: "+m.node.IP()+":6443\napiServer: {extraArgs: [{name: no-such-flag, value: '1'}]}"))
	out, err := m.try("slipway", "init", "--config=/root/slipway.yaml")
	m.must("sh", "-c", "mv /etc/resolv.conf.away /etc/resolv.conf")
	if err == nil || !strings.Contains(out, "[ERROR ResolvConf]") {
		m.Errorf("without /etc/resolv.conf: %v\n%s", err, out)
	}
	if out, err := m.try("ls", "/etc/kubernetes/manifests/kube-apiserver.yaml"); err == nil {
		m.Errorf("a refused init wrote %s", out)
	}
	out, err = m.try("slipway", "init", "--config=/root/slipway.yaml")
	if err == nil {
		m.Fatalf("init with a typo succeeds:\n%s", out)
	}
	fact.In(m.T, out, "[bad-flag] kube-apiserver", "--no-such-flag")
}

// corrects runs the init that corrects a failed one, if any has failed.
func (m machine) corrects(failed bool, config string, more ...string) {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	out, err := m.try(append([]string{"slipway", "init", "--config=/root/slipway.yaml"}, more...)...)
	if err != nil {
		m.Fatalf("the corrected init: %v\n%s", err, out)
	}
	if !failed {
		return
	}
	fact.In(m.T, out, "Writing /etc/kubernetes/manifests/kube-apiserver.yaml", "--no-such-flag=1", "/etc/kubernetes/pki/apiserver.crt", sharedEndpoint)
}

// failsToJoin joins with a typo in the scheduler's flags. By the time anyone reads the error, the kubelet has registered its
// Node.
func (m machine) failsToJoin(cluster machine, plane []string) {
	m.Helper()
	m.must("mkdir", "-p", "/root/typo")
	m.write("/root/typo/kube-scheduler+json.json", `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--no-such-flag=1"}]`)
	out, err := m.try(append([]string{"slipway", "join", "--patches=/root/typo"}, plane...)...)
	if err == nil {
		m.Errorf("join with a typo succeeds:\n%s", out)
	}
	fact.In(m.T, out, "[bad-flag] kube-scheduler", "--no-such-flag")
	m.eventually("the Node to be registered", readyLimit, func() error {
		out, err := cluster.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", m.node.Name())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// getsAnotherName renames a worker's host. The cluster doesn't let its kubelet register another node.
func (m machine) getsAnotherName(cluster machine) {
	m.Helper()
	name := m.node.Name()
	m.must("sh", "-c", "hostname renamed && systemctl restart kubelet")
	m.eventually("the cause to be named", readyLimit, func() error {
		out, err := m.try("slipway", "diagnose")
		if err == nil || !strings.Contains(out, "[node-name]") || !strings.Contains(out, "node "+name) {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	m.must("sh", "-c", "hostname "+name+" && systemctl restart kubelet")
	cluster.ready(name)
}

// hasCopyOfManifest leaves a copy of a manifest in the kubelet's directory, which the kubelet runs too.
func (m machine) hasCopyOfManifest() {
	m.Helper()
	out, err := m.try("sh", "-c", "cd /etc/kubernetes/manifests && cp etcd.yaml etcd.yaml.bak && slipway diagnose; found=$?; rm etcd.yaml.bak; exit $found")
	if err == nil {
		m.Errorf("nothing is found:\n%s", out)
	}
	fact.In(m.T, out, "[manifest-copy] etcd", "/etc/kubernetes/manifests/etcd.yaml.bak")
}
