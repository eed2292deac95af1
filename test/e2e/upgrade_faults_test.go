// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/tier"
)

// upgradeInstants are in the order of an upgrade. Each run picks up where the one before was killed, and gets at least as far as
// the next instant.
var upgradeInstants = []instant{
	{"[preflight] Checking", 0},
	{"[control-plane] Keeping … manifests", 0},
	{"[control-plane] Writing … etcd", 20 * time.Millisecond},
	{"[control-plane] … whole", 0},
	{"[control-plane] Upgrading ", 0},
	{"[control-plane] Upgrading ", 400 * time.Millisecond},
	{"[control-plane] Upgrading ", 2 * time.Second},
	{"[control-plane] Upgrading kube-controller-manager", 0},
	{"[control-plane] Upgrading kube-controller-manager", 300 * time.Millisecond},
	{"[upload-config] … ClusterConfiguration", 0},
	{"[upload-config] … KubeletConfiguration", 10 * time.Millisecond},
	{"[addon] Upgrading ", 20 * time.Millisecond},
}

// TestUpgradeCrash kills one upgrade twelve times, once with the whole node. The same command finishes it.
func TestUpgradeCrash(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.kubeadmInit(podSubnet)
	command := []string{"slipway", "upgrade", "apply", m.upgradesTo(), "--yes", littleRoom}
	for i, at := range upgradeInstants {
		end := nothingMore
		if i == 6 {
			end = m.node.Kill
		}
		if !m.killedAt(at, end, command...) {
			m.Errorf("it ended before %s", at)
		}
		if i == 6 {
			if err := m.node.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.apply()
	m.installs(newestKubernetes)
	m.runsVersion(m.upgradesTo(), "cp-1")
	m.isWhole()
	m.healthy(everything)
	m.initOnlyAddsToken(document("", podSubnet))
}

// TestUpgradeFails upgrades with an API server that doesn't start. By then etcd is upgraded, and stays; the former API server
// serves again.
func TestUpgradeFails(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.kubeadmInit(podSubnet)
	m.must("mkdir", "/root/patches")
	m.write("/root/patches/kube-apiserver0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: --no-such-flag=1}\n")
	image := func() string {
		return strings.TrimSpace(m.must("grep", "-o", "registry.k8s.io/kube-apiserver:.*", "/etc/kubernetes/manifests/kube-apiserver.yaml"))
	}
	before := image()
	out, err := m.try("slipway", "upgrade", "apply", m.upgradesTo(), "--yes", "--patches=/root/patches", littleRoom+",flag-removed")
	if err == nil {
		t.Fatalf("the upgrade succeeded:\n%s", out)
	}
	for _, want := range []string{"[bad-flag] kube-apiserver", "unknown flag: --no-such-flag", before, "etcd stays"} {
		if !strings.Contains(out, want) {
			t.Errorf("the upgrade does not say %q:\n%s", want, out)
		}
	}
	if after := image(); after != before {
		t.Errorf("the API server is %s, before %s", after, before)
	}
	if stored := m.storedText("kubeadm-config", "ClusterConfiguration"); !strings.Contains(stored, "kubernetesVersion: v"+olderKubernetes) {
		t.Errorf("the failed upgrade stored another version:\n%s", stored)
	}
	m.apply()
	m.runsVersion(m.upgradesTo())
	m.healthy(everything)
}

// TestUpgradeExternal upgrades a control plane with an external etcd.
func TestUpgradeExternal(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.servesEtcd()
	m.kubeadmInit(fmt.Sprintf(`%s
etcd:
  external:
    endpoints: [https://%s:12379]
    caFile: %[3]s
    certFile: %[4]s
    keyFile: %[5]s`, podSubnet, m.node.IP(), path.Join(externalPKI, "ca.crt"), path.Join(externalPKI, "client.crt"), path.Join(externalPKI, "client.key")))
	before := m.must("pidof", "etcd")
	m.apply()
	m.runsVersion(m.upgradesTo())
	if after := m.must("pidof", "etcd"); after != before {
		t.Errorf("etcd was restarted: process %s, then %s", before, after)
	}
	want := everything
	want.pods = []string{"coredns-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"}
	m.healthy(want)
}
