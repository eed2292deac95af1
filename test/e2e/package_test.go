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

// TestPackageOnNode installs, upgrades and removes the package on a node that runs, which it does not touch, and boots
// without it: what the package says of that is true, and installing it again is all that it takes.
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

// nodeState is what a package must not touch: the kubelet that runs, the files of the cluster, and the containers.
func (m machine) nodeState() string {
	m.Helper()
	return m.must("systemctl", "show", "kubelet", "-p", "MainPID", "-p", "ActiveEnterTimestamp") +
		m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env", "-printf", `%p %m %T@\n`) +
		m.must("sh", "-c", "ctr --namespace=k8s.io tasks ls | sort")
}
