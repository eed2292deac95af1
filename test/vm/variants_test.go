// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/lab/qemu"
)

// TestSwapKept leaves swap on, on a partition, and makes a node that tolerates it.
func TestSwapKept(t *testing.T) {
	m := newMachine(t, func(o *qemu.Options) { o.Swap = true })
	m.boots()
	m.getsSwap()
	m.installs()
	m.write("/root/up.yaml", upConfig+"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n")
	m.takes(append(upArgs, "--swap=keep")...)
	m.hasSwap(true)
	m.runsPod()
	m.reboots()
	m.hasSwap(true)
}

// TestJoin makes a cluster of two machines, each on the other end of a cable.
func TestJoin(t *testing.T) {
	cable := filepath.Join(t.TempDir(), "cable")
	m, _ := prepared(t, func(o *qemu.Options) { o.More = plug(cable, true) })
	w, _ := prepared(t, func(o *qemu.Options) { o.Name, o.More = "worker-1", plug(cable, false) })
	m.boots()
	m.getsAddress("192.168.77.11")
	m.write("/root/up.yaml", upConfig)
	m.takes(upArgs...)
	w.boots()
	w.getsAddress("192.168.77.21")
	join := strings.Fields(m.must("slipway", "token", "create", "--print-join-command"))[2:]
	w.takes(append([]string{"slipway", "up", "--bundle", bundlePath}, join...)...)
	m.kubectl("wait", "--for=condition=Ready", "--timeout=5m", "nodes", "cp-1", "worker-1")
	m.runsPod()
}

// plug returns QEMU's arguments for a second network interface at one end of a cable.
func plug(cable string, first bool) []string {
	server, mac := "off", "52:54:00:00:01:21"
	if first {
		server, mac = "on", "52:54:00:00:01:11"
	}
	return []string{
		"-netdev", "stream,id=n1,server=" + server + ",addr.type=unix,addr.path=" + cable,
		"-device", "virtio-net-pci,netdev=n1,mac=" + mac,
	}
}

// getsAddress sets up the cable's end, and leads the default route there: the other interface has the same address on all
// machines.
func (m machine) getsAddress(address string) {
	m.Helper()
	m.must("sed", "-i", "/^Gateway=/d", "/etc/systemd/network/10-lab.network")
	m.write("/etc/systemd/network/20-cable.network", "[Match]\nMACAddress=52:54:00:00:01:11 52:54:00:00:01:21\n[Network]\nAddress="+
		address+"/24\nGateway=192.168.77.1\n")
	m.must("networkctl", "reload")
	m.must("/usr/lib/systemd/systemd-networkd-wait-online", "--ipv4", "--timeout=300")
	if routes := m.must("ip", "route", "get", "192.0.2.1"); !strings.Contains(routes, address) {
		m.Errorf("the default route is %s", routes)
	}
}

// TestUpgrade makes a node of the release before, and upgrades it.
func TestUpgrade(t *testing.T) {
	m := bootOlder(t)
	m.takes("slipway", "host", "prepare", "phase", "images", "--bundle", bundlePath)
	m.takes(upgradeArgs(t)...)
	m.takes(prepareArgs...)
	m.runsPod()
}

func upgradeArgs(t *testing.T) []string {
	t.Helper()
	return []string{"slipway", "upgrade", "apply", openLab(t).VersionOf(""), "--yes", "--config", "/root/upgrade.yaml"}
}

const upgradeConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
` + slowTimeouts

// bootOlder makes a node of the release before.
func bootOlder(t *testing.T) machine {
	t.Helper()
	older := filepath.Join(t.TempDir(), "older.tar")
	dir, err := openLab(t).BundleParts(t.Context(), "1.36")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "../../bin/slipway", "bundle", "create", "--from", dir, "-o", older).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const olderPath = "/mnt/older.tar"
	m := newMachine(t, nil)
	m.Share = shareWith(t, openLab(t), map[string]string{filepath.Base(olderPath): older})
	m.boots()
	m.installs()
	m.write("/root/up.yaml", upConfig)
	m.write("/root/upgrade.yaml", upgradeConfig)
	m.takes("slipway", "up", "--config", "/root/up.yaml", "--bundle", olderPath, "--network", "flannel", "--schedulable")
	return m
}

// A runtime is a host whose container runtime, or whose Linux Security Module, isn't the lab's usual.
var runtimes = []struct {
	name     string
	packages []string
	kernel   []string
	files    map[string]string
}{
	{name: "containerd-1.7", packages: []string{"containerd", "runc"}},
	{name: "docker.io", packages: []string{"docker.io"}},
	{name: "crun", packages: []string{"crun"}, files: map[string]string{"/etc/containerd/conf.d/crun.toml": crunSettings}},
	{name: "selinux-permissive", packages: selinuxPackages, kernel: []string{"security=selinux", "selinux=1", "enforcing=0"}},
	{name: "selinux-enforcing", packages: selinuxPackages, kernel: []string{"security=selinux", "selinux=1", "enforcing=1"}},
}

var selinuxPackages = []string{"selinux-basics", "selinux-policy-default", "policycoreutils", "auditd"}

const crunSettings = `version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'crun'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
BinaryName = '/usr/bin/crun'
SystemdCgroup = true
`

// TestRuntimes makes a node of each, and runs a Pod.
func TestRuntimes(t *testing.T) {
	for _, r := range runtimes {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t, func(o *qemu.Options) { o.Boot = r.kernel }, r.packages...)
			m.boots()
			m.installs()
			for path, content := range r.files {
				m.must("mkdir", "--parents", filepath.Dir(path))
				m.write(path, content)
			}
			m.write("/root/up.yaml", upConfig)
			m.takes(append(upArgs, "--dry-run")...)
			m.takes(upArgs...)
			m.runsPod()
			if r.kernel != nil {
				denied, _ := m.try("ausearch", "-m", "avc", "-i") // none is an error
				m.Logf("SELinux's denials:\n%s", denied)
			}
		})
	}
}
