// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/lab/qemu"
)

var prepareArgs = []string{"slipway", "host", "prepare", "--bundle", bundlePath}

// TestHostPrepare prepares a machine with swap on a partition, and cuts its power once the command has said that it's done. Then
// the same command finishes, the machine boots prepared, and host reset leaves it as it was.
func TestHostPrepare(t *testing.T) {
	m := newMachine(t, func(o *qemu.Options) { o.Swap = true })
	m.boots()
	m.getsSwap()
	m.installs()
	m.isStock()
	before := m.state()

	m.takes(prepareArgs...)
	m.isPrepared()
	m.losesPower()
	m.isPrepared()
	m.takes(prepareArgs...)
	const nothing = "Plan: 0 steps."
	if plan := m.takes(append(prepareArgs, "--dry-run")...); !strings.Contains(plan, nothing) {
		t.Errorf("there is something to do on a prepared host:\n%s", plan)
	}

	m.shutsDown()
	m.hasWholeImages()
	m.savesPrepared(before)
	m.boots()
	m.isPrepared()
	m.takes("slipway", "host", "reset")
	m.reboots() // kernel modules stay until then, with the parameters they brought
	m.isAsBefore(before, m.state())
}

// hasWholeImages looks at the disk of a machine that's off.
func (m machine) hasWholeImages() {
	m.Helper()
	var faults []string
	files := 0
	err := m.Inspect(m.Context(), func(root string) (err error) {
		faults, files, err = intact.Images(filepath.Join(root, "var/lib/containerd"))
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
	m.Logf("the layers have %d files", files)
	if files == 0 || len(faults) > 0 {
		m.Errorf("%d of %d files on the disk are damaged or missing:\n%s", len(faults), files, strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
}

// getsSwap turns swap on, as an installer of Debian does.
func (m machine) getsSwap() {
	m.Helper()
	m.must("mkswap", "--label", "swap", "/dev/vdc1")
	m.must("sed", "-i", "$ a LABEL=swap none swap sw 0 0", "/etc/fstab")
	m.must("systemctl", "daemon-reload")
	m.must("swapon", "--all")
	m.hasSwap(true)
}

func (m machine) hasSwap(want bool) {
	m.Helper()
	if areas := m.must("swapon", "--noheadings", "--show=NAME"); (areas != "") != want {
		m.Errorf("swap: %q", areas)
	}
}

// isStock checks the facts for which this suite exists.
func (m machine) isStock() {
	m.Helper()
	m.Logf("%s%s", m.must("uname", "-r"), m.must("systemctl", "--version"))
	if fs := strings.TrimSpace(m.must("stat", "--file-system", "--format=%T", "/sys/fs/cgroup")); fs != "cgroup2fs" {
		m.Errorf("cgroups are in a %s", fs)
	}
	if enabled := strings.TrimSpace(m.must("cat", "/sys/module/apparmor/parameters/enabled")); enabled != "Y" {
		m.Errorf("AppArmor: %q", enabled)
	}
	if at := strings.TrimSpace(m.must("readlink", "/etc/resolv.conf")); at != "../run/systemd/resolve/stub-resolv.conf" {
		m.Errorf("names are resolved by %s", at)
	}
	for _, module := range []string{"overlay", "br_netfilter"} {
		if m.hasModule(module) {
			m.Errorf("the module %s is there before it's needed", module)
		}
	}
}

func (m machine) hasModule(name string) bool {
	_, err := m.try("test", "-d", "/sys/module/"+name)
	return err == nil
}

// isPrepared checks what host prepare does to the kernel and to systemd.
func (m machine) isPrepared() {
	m.Helper()
	m.hasSwap(false)
	for _, module := range []string{"overlay", "br_netfilter"} {
		if !m.hasModule(module) {
			m.Errorf("the module %s isn't loaded", module)
		}
	}
	if on := m.must("sysctl", "--values", "net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"); on != "1\n1\n" {
		m.Errorf("forwarding and bridges: %q", on)
	}
	if active := m.must("systemctl", "is-active", "containerd"); active != "active\n" {
		m.Errorf("containerd is %q", active)
	}
	if config := m.must("cat", "/etc/containerd/config.toml"); !strings.Contains(config, "SystemdCgroup = true") {
		m.Errorf("containerd's cgroup driver isn't systemd:\n%s", config)
	}
	m.must("ctr", "--namespace=k8s.io", "images", "check")
}

// reboots switches the machine off and on in order.
func (m machine) reboots() {
	m.Helper()
	m.shutsDown()
	m.boots()
}
