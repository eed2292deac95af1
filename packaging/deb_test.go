// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (p *packages) testDeb(t *testing.T) {
	t.Run("Install", p.testDebInstall)
	t.Run("Replaces", p.testDebReplaces)
	t.Run("Interrupted", p.testDebInterrupted)
	t.Run("Relations", p.testDebRelations)
	t.Run("Upgrade", p.testDebUpgrade)
	t.Run("Remove", p.testDebRemove)
	t.Run("RemoveFails", p.testDebRemoveFails)
	t.Run("RemoveQuietly", p.testDebRemoveQuietly)
}

// aptInstall keeps apt from using a terminal, which tests don't have.
var aptInstall = []string{"apt-get", "-o", "Dpkg::Use-Pty=0", "install", "--yes"}

// debHost returns a node with the kubelet's package and others, and the paths of our packages on it.
func (p *packages) debHost(t *testing.T, others ...standIn) (r *root, ours, older string) {
	t.Helper()
	its := []string{kubelet("/etc/default/kubelet").pack(t, "deb")}
	for _, other := range others {
		its = append(its, other.pack(t, "deb"))
	}
	r = newRoot(t, p.tree...)
	r.run(append([]string{"dpkg", "--install"}, r.bring(its...)...)...)
	r.node()
	r.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--v=3\n")
	paths := r.bring(p.of(t, p.release, "deb"), p.of(t, p.older, "deb"))
	return r, paths[0], paths[1]
}

// testDebInstall checks an installation.
func (p *packages) testDebInstall(t *testing.T) {
	r, ours, _ := p.debHost(t)
	r.run("dpkg", "--install", ours)
	r.wantInPlace(p)
	r.wantTimer(false)
	r.wantContents("/usr/share/zsh/vendor-completions", "/usr/share/doc/slipway/copyright", "/usr/share/doc/slipway/changelog.Debian.gz")
	r.wantUnits()
}

// testDebReplaces installs Slipway over Kubernetes' package, whose drop-in has been in several places over the years.
func (p *packages) testDebReplaces(t *testing.T) {
	conffile, conffileBelowLib := kubeadm("/usr/lib"), kubeadm("/lib")
	conffile.conffiles, conffileBelowLib.conffiles = []string{ourDropIn}, []string{"/lib/" + dropIn}
	for _, tt := range []struct {
		name    string
		kubeadm standIn
		install []string
	}{
		{"below usr lib", kubeadm("/usr/lib"), []string{"dpkg", "--install"}},
		{"below lib", kubeadm("/lib"), []string{"dpkg", "--install"}},
		{"below etc", kubeadm("/etc"), []string{"dpkg", "--install"}},
		{"conffile", conffile, []string{"dpkg", "--install"}},
		{"conffile below lib", conffileBelowLib, []string{"dpkg", "--install"}},
		{"below usr lib with apt", kubeadm("/usr/lib"), aptInstall},
		{"below lib with apt", kubeadm("/lib"), aptInstall},
		{"below etc with apt", kubeadm("/etc"), aptInstall},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ours, _ := p.debHost(t, tt.kubeadm)
			before := r.untouched()
			said := r.run(append(tt.install, ours)...)
			r.wantInPlace(p)
			r.wantAsked("--system daemon-reload")
			if strings.Contains(said, stillNode) {
				t.Errorf("said:\n%s", said)
			}
			wantUntouched(t, before, r.untouched())
			// The configuration of kubeadm that dpkg keeps may go too.
			r.run("dpkg", "--purge", "kubeadm")
			r.wantInPlace(p)
		})
	}
}

// testDebInterrupted checks that an interrupted installation lacks the drop-in, and that a later run of dpkg repairs it.
func (p *packages) testDebInterrupted(t *testing.T) {
	r, ours, _ := p.debHost(t, kubeadm("/lib"))
	r.run("dpkg", "--unpack", ours)
	if r.has(ourDropIn) {
		t.Error("dpkg leaves the drop-in in place, so nothing has to put it back any more")
	}
	r.run("dpkg", "--configure", "--pending")
	r.wantInPlace(p)
}

// testDebRelations: Slipway replaces kubeadm, and is never installed beside it.
func (p *packages) testDebRelations(t *testing.T) {
	tool := standIn{name: "cluster-tool", version: "1", depends: []string{"kubeadm (>= 1.30)"}}
	newer := standIn{name: "newer-tool", version: "1", depends: []string{"kubeadm (>= 2.0)"}}.pack(t, "deb")
	their := kubeadm("/usr/lib").pack(t, "deb")
	r, ours, _ := p.debHost(t, kubeadm("/usr/lib"), tool)
	theirs := r.bring(their, newer)
	r.run("apt-mark", "hold", "kubeadm")
	r.refuses("kubeadm is on hold", "dpkg", "--install", ours)
	r.refuses("held broken packages", append(aptInstall, ours)...)
	r.run("apt-mark", "unhold", "kubeadm")
	r.run("dpkg", "--install", ours)
	r.run("dpkg", "--audit")
	r.run("apt-get", "check")
	r.refuses("slipway conflicts with kubeadm", "dpkg", "--install", theirs[0])
	r.refuses("newer-tool depends on kubeadm (>= 2.0)", "dpkg", "--install", theirs[1])
	r.wantInPlace(p)
	r.run("dpkg", "--purge", "newer-tool")
	r.run(append(aptInstall, theirs[0])...)
	if r.read(ourDropIn) != theirDropIn || r.has("/usr/bin/slipway") {
		t.Error("kubeadm does not take Slipway's place")
	}
}

func (p *packages) testDebUpgrade(t *testing.T) {
	r, ours, older := p.debHost(t)
	r.run("dpkg", "--install", older)
	r.run("systemctl", "enable", renewalTimer, snapshotTimer)
	r.asked()
	before := r.untouched()
	for range 2 { // the second time with the same version
		said := r.run("dpkg", "--install", ours)
		r.wantInPlace(p)
		r.wantTimer(true)
		r.wantAsked("--system daemon-reload", "--system daemon-reload")
		if strings.Contains(said, stillNode) {
			t.Errorf("said:\n%s", said)
		}
	}
	wantUntouched(t, before, r.untouched())
}

func (p *packages) testDebRemove(t *testing.T) {
	their := kubeadm("/lib").pack(t, "deb")
	r, ours, _ := p.debHost(t)
	kubeadm := r.bring(their)[0]
	everything := func() map[string]string {
		all := r.files(false, "/usr", "/etc", "/var")
		maps.DeleteFunc(all, func(path, _ string) bool {
			return strings.HasPrefix(path, "/var/lib/dpkg/") || strings.HasPrefix(path, "/var/log/") || strings.HasPrefix(path, "/var/cache/")
		})
		return all
	}
	clean, before := everything(), r.untouched()
	r.run("dpkg", "--install", ours)
	r.run("systemctl", "enable", renewalTimer, snapshotTimer)
	r.asked()
	said := r.run("dpkg", "--remove", "slipway")
	if !strings.Contains(said, stillNode) || r.has(ourDropIn) {
		t.Errorf("drop-in still there: %t; said:\n%s", r.has(ourDropIn), said)
	}
	r.wantAsked("stop "+bothTimers, "--system daemon-reload")
	wantUntouched(t, before, r.untouched())
	r.run("dpkg", "--purge", "slipway")
	after := everything()
	delete(clean, "/etc/systemd/system/timers.target.wants") // systemctl leaves it
	delete(after, "/etc/systemd/system/timers.target.wants")
	if diff := cmp.Diff(clean, after); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	r.run("dpkg", "--install", kubeadm)
	if r.read("/lib/"+dropIn) != theirDropIn {
		t.Error("kubeadm's drop-in is not there")
	}
}

// testDebRemoveFails: Slipway stays, with its timers, if the package that would replace it can't be installed.
func (p *packages) testDebRemoveFails(t *testing.T) {
	broken := standIn{name: "other", version: "1", replaces: []string{"slipway"}, preinst: "#!/bin/sh\necho refused >&2\nexit 1\n"}
	their := broken.pack(t, "deb")
	r, ours, _ := p.debHost(t)
	r.run("dpkg", "--install", ours)
	r.run("systemctl", "enable", renewalTimer, snapshotTimer)
	r.asked()
	r.refuses("refused", "dpkg", "--install", r.bring(their)[0])
	r.wantInPlace(p)
	for _, timer := range []string{renewalTimer, snapshotTimer} {
		if !r.has(enabledTimers + timer) {
			t.Errorf("%s is off", timer)
		}
	}
	if asked := r.asked(); slices.Contains(asked, "stop "+bothTimers) {
		t.Errorf("systemctl: %q", asked)
	}
}

// testDebRemoveQuietly removes Slipway where that doesn't endanger the kubelet, and where systemd doesn't run.
func (p *packages) testDebRemoveQuietly(t *testing.T) {
	for _, tt := range []struct{ name, remove, add string }{
		{"no node", "/var/lib/kubelet/config.yaml", ""},
		{"a drop-in of the administrator", "", "/etc/" + dropIn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ours, _ := p.debHost(t)
			r.run("rm", "-rf", "/run/systemd/system", tt.remove)
			if tt.add != "" {
				r.write(tt.add, theirDropIn)
			}
			r.run("dpkg", "--install", ours)
			r.wantAsked()
			r.run("systemctl", "enable", renewalTimer, snapshotTimer)
			if said := r.run("dpkg", "--remove", "slipway"); strings.Contains(said, stillNode) {
				t.Errorf("said:\n%s", said)
			}
			if r.has(linked) {
				t.Error("the link to the timer is left")
			}
		})
	}
}
