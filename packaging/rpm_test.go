// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

func (p *packages) testRpm(t *testing.T) {
	t.Run("Install", p.testRpmInstall)
	t.Run("Preset", p.testRpmPreset)
	t.Run("Relations", p.testRpmRelations)
	t.Run("Swap", p.testRpmSwap)
	t.Run("Upgrade", p.testRpmUpgrade)
	t.Run("Erase", p.testRpmErase)
}

// rpmHost is a node whose programs came as rpms, as far as its database knows: a shell, the kubelet, and perhaps others.
type rpmHost struct {
	*root
	ours, older string
}

func (p *packages) rpmHost(t *testing.T, others ...standIn) *rpmHost {
	t.Helper()
	base := []standIn{{name: "bash", version: "5", provides: []string{"/bin/sh"}}, kubelet("/etc/sysconfig/kubelet")}
	var its []string
	for _, other := range append(base, others...) {
		its = append(its, other.pack(t, "rpm"))
	}
	h := &rpmHost{root: newRoot(t, p.tree...), ours: p.of(t, p.release, "rpm"), older: p.of(t, p.older, "rpm")}
	h.rpm(append([]string{"--install"}, its...)...)
	h.node()
	h.write("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--v=3\n")
	return h
}

// rpm runs this machine's rpm on the host, which must succeed, and returns its output.
func (h *rpmHost) rpm(args ...string) string {
	h.t.Helper()
	return h.must(h.rpmCommand(args...))
}

// dnf runs this machine's dnf on the host, which must succeed, and returns its output.
func (h *rpmHost) dnf(args ...string) string {
	h.t.Helper()
	return h.must(h.dnfCommand(args...))
}

func (h *rpmHost) rpmCommand(args ...string) *exec.Cmd {
	return exec.Command("rpm", append([]string{"--root", h.dir, "--force-debian"}, args...)...)
}

func (h *rpmHost) dnfCommand(args ...string) *exec.Cmd {
	return exec.Command("dnf", append([]string{"--installroot=" + h.dir, "--disablerepo=*", "--releasever=1", "--assumeyes"}, args...)...)
}

func (h *rpmHost) must(cmd *exec.Cmd) string {
	h.t.Helper()
	said, err := combined(cmd)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, said)
	}
	return said
}

func (p *packages) testRpmInstall(t *testing.T) {
	h := p.rpmHost(t)
	h.rpm("--install", h.ours)
	h.wantInPlace(p)
	h.wantAsked("daemon-reload", "--no-reload preset "+bothTimers)
	h.wantTimer(false)
	h.wantContents("/usr/share/zsh/site-functions", "/usr/share/licenses/slipway/LICENSE")
	h.wantUnits()
}

// testRpmPreset: an administrator may have decided to enable the timer.
func (p *packages) testRpmPreset(t *testing.T) {
	h := p.rpmHost(t)
	h.write("/etc/systemd/system-preset/00-own.preset", "enable "+renewalTimer+"\n")
	h.rpm("--install", h.ours)
	h.wantTimer(true)
}

// testRpmRelations: Slipway is never installed beside kubeadm, and replaces it only on request.
func (p *packages) testRpmRelations(t *testing.T) {
	tool := standIn{name: "cluster-tool", version: "1", depends: []string{"kubeadm >= 1.30"}}
	h := p.rpmHost(t, kubeadm("/usr/lib"), tool)
	for _, cmd := range []*exec.Cmd{h.rpmCommand("--install", h.ours), h.rpmCommand("--upgrade", h.ours), h.dnfCommand("install", h.ours)} {
		said, err := combined(cmd)
		if err == nil || !strings.Contains(said, "conflicts with") {
			t.Errorf("%s: %v\n%s", cmd.Args, err, said)
		}
	}
	if said := h.rpm("--query", "--package", "--obsoletes", h.ours); said != "" {
		t.Errorf("obsoletes: %s", said)
	}
	if h.read(ourDropIn) != theirDropIn {
		t.Error("kubeadm's drop-in has changed")
	}
	h.dnf("swap", "kubeadm", h.ours)
	h.wantInPlace(p)
}

// testRpmSwap lets dnf swap kubeadm for Slipway, and back.
func (p *packages) testRpmSwap(t *testing.T) {
	for _, below := range []string{"/usr/lib", "/lib"} {
		t.Run(below, func(t *testing.T) {
			kubeadm := kubeadm(below)
			its := kubeadm.pack(t, "rpm")
			h := p.rpmHost(t, kubeadm)
			before := h.untouched()
			there := h.dnf("swap", "kubeadm", h.ours)
			h.wantInPlace(p)
			back := h.dnf("swap", "slipway", its)
			if h.read(ourDropIn) != theirDropIn || h.has("/usr/bin/slipway") {
				t.Errorf("kubeadm does not take Slipway's place:\n%s", back)
			}
			if strings.Contains(there+back, stillNode) {
				t.Errorf("said:\n%s%s", there, back)
			}
			wantUntouched(t, before, h.untouched())
		})
	}
}

func (p *packages) testRpmUpgrade(t *testing.T) {
	h := p.rpmHost(t)
	h.rpm("--install", h.older)
	h.run("systemctl", "enable", renewalTimer, snapshotTimer)
	h.asked()
	before := h.untouched()
	said := h.rpm("--upgrade", h.ours)
	h.wantInPlace(p)
	h.wantTimer(true)
	h.wantAsked("daemon-reload", "--system daemon-reload")
	if strings.Contains(said, stillNode) {
		t.Errorf("said:\n%s", said)
	}
	wantUntouched(t, before, h.untouched())
}

func (p *packages) testRpmErase(t *testing.T) {
	h := p.rpmHost(t)
	before := h.untouched()
	h.rpm("--install", h.ours)
	h.run("systemctl", "enable", renewalTimer, snapshotTimer)
	h.asked()
	said := h.rpm("--erase", "slipway")
	if !strings.Contains(said, stillNode) || h.has(ourDropIn) || h.has(linked) {
		t.Errorf("drop-in still there: %t, timer: %t; said:\n%s", h.has(ourDropIn), h.has(linked), said)
	}
	h.wantAsked("stop "+bothTimers, "--system daemon-reload")
	wantUntouched(t, before, h.untouched())
}
