// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/tier"
)

// answersPlaybooks runs Slipway through a link named kubeadm, and compares its standard output, which scripts read, with
// kubeadm's. The link comes from answersAsKubeadm.
func answersPlaybooks(m machine) {
	const link = "/root/kubeadm"
	shared := func(program string) (above []string, key string) {
		lines := strings.Split(strings.TrimSpace(m.must(program, "init", "phase", "--config", "/root/slipway.yaml", "upload-certs", "--upload-certs")), "\n")
		return lines[:len(lines)-1], lines[len(lines)-1]
	}
	got, key := shared(link)
	want, theirs := shared("kubeadm")
	if strings.Join(got, "\n") != strings.Join(want, "\n") || len(key) != len(theirs) {
		m.Errorf("upload-certs prints %q and a key of %d characters, kubeadm %q and one of %d", got, len(key), want, len(theirs))
	}
	token := func(program string) string {
		words := strings.Fields(m.must(program, "token", "create", "--print-join-command"))
		m.must(program, "token", "delete", words[4]) // kubeadm join HOST:PORT --token TOKEN
		words[4] = "TOKEN"
		return strings.Join(words, " ")
	}
	if got, want := token(link), token("kubeadm"); got != want {
		m.Errorf("token create prints %q, kubeadm %q", got, want)
	}
}

// podNetworkWithFaults passes the checks that need no API. The DaemonSet has no selector for the labels on line 11.
const podNetworkWithFaults = `apiVersion: v1
kind: Namespace
metadata: {name: pod-network}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: pod-network}

spec:
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: example.org/agent}]}
---
apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: agent}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: agent, namespace: pod-network}
spec: {podSelecto: {}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine, namespace: pod-network}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.net.example}
spec:
  group: net.example
  scope: Cluster
  names: {kind: Pool, plural: pools}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: net.example/v1
kind: Pool
metadata: {name: all}
`

// asksOfPodNetwork checks that a real API finds a Pod network's faults before anything of it is created.
func asksOfPodNetwork(m machine) {
	m.write("/root/net.yaml", podNetworkWithFaults)
	out, err := m.try("slipway", "init", "phase", "addon", "network", "--config", "/root/slipway.yaml", "--network", "/root/net.yaml")
	for _, want := range []string{
		"/root/net.yaml:11: DaemonSet pod-network/agent: spec.template.metadata.labels: ", "/root/net.yaml:14: PodSecurityPolicy agent: apiVersion", "/root/net.yaml:18: NetworkPolicy pod-network/agent: ", `"spec.podSelecto"`,
		"takes Pool all: ",
	} {
		if err == nil || !strings.Contains(out, want) {
			m.Errorf("no %q (%v) in:\n%s", want, err, out)
		}
	}
	for _, never := range []string{"ConfigMap pod-network/fine", "CustomResourceDefinition pools"} {
		if strings.Contains(out, never) {
			m.Errorf("a fault of %s in:\n%s", never, out)
		}
	}
	if left := m.kubectl("get", "namespace", "pod-network", "--ignore-not-found"); left != "" {
		m.Errorf("something was created:\n%s", left)
	}
}

// TestPackageOnNode installs, upgrades and removes the package on a running node, without touching the node, and boots it without
// the package. The package's messages about that must be true, and reinstalling it must be enough.
func TestPackageOnNode(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := boot(t)
	m.init(document("", podSubnet))
	m.ready("cp-1")
	m.podsRun(everything.pods)
	deb := slipwayPackage(t)
	before := m.nodeState()
	untouched := func(what string) {
		t.Helper()
		if diff := cmp.Diff(before, m.nodeState()); diff != "" {
			t.Errorf("%s the package changed the node (-before +after):\n%s", what, diff)
		}
	}
	m.installsPackage(deb)
	untouched("installing")
	if out := m.installsPackage(deb); strings.Contains(out, "next boot") {
		t.Errorf("an upgrade speaks of a removal:\n%s", out)
	}
	untouched("upgrading")
	if out, err := m.try("dpkg", "--remove", "slipway"); err != nil || !strings.Contains(out, "next boot") {
		t.Errorf("a removal does not say what it means: %v\n%s", err, out)
	}
	untouched("removing")

	if err := m.node.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw", "/readyz", "--request-timeout=5s"); err == nil {
		t.Errorf("the control plane is there without the drop-in: %s", out)
	}
	m.installsPackage(deb)
	m.must("systemctl", "restart", "kubelet")
	m.eventually("the API", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw", "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.healthy(everything)
}

// nodeState lists the things a package mustn't touch: the running kubelet, the cluster's files, and the containers.
func (m machine) nodeState() string {
	m.Helper()
	return m.must("systemctl", "show", "kubelet", "-p", "MainPID", "-p", "ActiveEnterTimestamp") +
		m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env", "-printf", `%p %m %T@\n`) +
		m.must("sh", "-c", "ctr --namespace=k8s.io tasks ls | sort")
}
