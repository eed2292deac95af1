// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	renewalTimer, snapshotTimer = "slipway-certs-renew.timer", "slipway-etcd-snapshot.timer"
	bothTimers                  = renewalTimer + " " + snapshotTimer
	// A timer is enabled by a link in this directory; linked is the renewal's.
	enabledTimers = "/etc/systemd/system/timers.target.wants/"
	linked        = enabledTimers + renewalTimer
	// stillNode is in the message when Slipway is removed from a node.
	stillNode = "`slipway reset`"
	// askedFile records the calls of systemctl.
	askedFile = "/asked"
)

// node turns the root into a cluster's node, with a systemctl that records its calls and carries out only changes to files.
func (r *root) node() {
	r.t.Helper()
	r.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "kind: Pod\n")
	r.write("/etc/kubernetes/pki/ca.key", "secret\n")
	r.write("/etc/kubernetes/admin.conf", "kind: Config\n")
	r.write("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	r.write("/etc/systemd/system/kubelet.service.d/20-own.conf", "[Service]\nNice=1\n")
	r.run("mkdir", "-p", "/run/systemd/system", "/etc/default", "/etc/sysconfig")
	r.run("mv", "/usr/bin/systemctl", "/usr/bin/systemctl.real")
	r.write("/usr/bin/systemctl", "#!/bin/sh\necho \"$*\" >>"+askedFile+
		"\ncase \"$*\" in *enable* | *disable* | *preset*) SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl.real \"$@\" ;; esac\n")
	r.run("chmod", "755", "/usr/bin/systemctl")
}

// untouched returns the files that the packages must leave alone.
func (r *root) untouched() map[string]string {
	r.t.Helper()
	return r.files(true, "/etc/kubernetes", "/var/lib/kubelet", "/etc/systemd/system/kubelet.service.d", "/etc/default", "/etc/sysconfig")
}

// asked returns the calls of systemctl since the last time.
func (r *root) asked() []string {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.read(askedFile)), "\n")
	r.write(askedFile, "")
	if lines[0] == "" {
		return nil
	}
	return lines
}

// wantAsked checks the calls of systemctl: nothing else was enabled, started or stopped.
func (r *root) wantAsked(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.asked()); diff != "" {
		r.t.Errorf("systemctl: %s", diff)
	}
}

// wantInPlace checks the files that exist as long as Slipway is installed: the drop-in and both names of the program.
func (r *root) wantInPlace(p *packages) {
	r.t.Helper()
	want, err := os.ReadFile("systemd/10-kubeadm.conf")
	must(r.t, err)
	if diff := cmp.Diff(string(want), r.read(ourDropIn)); diff != "" {
		r.t.Errorf("drop-in: %s", diff)
	}
	for _, path := range []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		if !strings.Contains(string(want), "\nEnvironmentFile=-"+path+"\n") {
			r.t.Errorf("the drop-in does not read %s", path)
		}
	}
	if version := r.run("kubeadm", "version", "--output=short"); version != "v"+p.kubernetes+"\n" {
		r.t.Errorf("kubeadm version: %q", version)
	}
	if version := r.run("slipway", "version"); !strings.Contains(version, p.release.version) {
		r.t.Errorf("slipway version: %q", version)
	}
}

// wantTimer checks whether the timer of the renewal is enabled. Neither an installation nor the preset enables a timer.
func (r *root) wantTimer(enabled bool) {
	r.t.Helper()
	if r.has(linked) != enabled {
		r.t.Errorf("the timer is enabled: %t", !enabled)
	}
	if enabled {
		return
	}
	r.run("systemctl", "preset-all")
	for _, timer := range []string{renewalTimer, snapshotTimer} {
		if r.has(enabledTimers + timer) {
			r.t.Errorf("%s: enabled by an installation, or the preset", timer)
		}
		r.run("systemctl", "enable", timer)
		if !r.has(enabledTimers + timer) {
			r.t.Errorf("%s cannot be enabled", timer)
		}
		r.run("systemctl", "disable", timer)
	}
}

// wantContents checks for the parts of a package that differ between formats, or that people look for.
func (r *root) wantContents(zsh string, others ...string) {
	r.t.Helper()
	for _, path := range append(others,
		"/usr/share/man/man8/slipway.8.gz", "/usr/share/man/man8/kubeadm.8.gz", "/usr/share/man/man8/slipway-init-phase-certs-ca.8.gz",
		"/usr/share/bash-completion/completions/slipway", "/usr/share/bash-completion/completions/kubeadm",
		"/usr/share/fish/vendor_completions.d/slipway.fish", "/usr/share/fish/vendor_completions.d/kubeadm.fish",
		zsh+"/_slipway", zsh+"/_kubeadm", "/usr/share/doc/slipway/install.md",
		"/usr/share/doc/slipway/plan.schema.json", "/usr/share/doc/slipway/examples/bundle/bundle.yaml") {
		if _, err := os.Stat(r.path(path)); err != nil {
			r.t.Error(err)
		}
	}
	for _, name := range []string{"slipway", "kubeadm"} {
		if said := r.run("bash", "-c", ". /usr/share/bash-completion/completions/"+name+" && complete -p "+name); !strings.Contains(said, "complete ") {
			r.t.Errorf("completion of %s: %q", name, said)
		}
	}
}

var documented = regexp.MustCompile(`(?m)^Documentation=man:(\S+)\((\d)\)$`)

// wantUnits verifies the units with systemd, and checks that the man pages they name exist.
func (r *root) wantUnits() {
	r.t.Helper()
	if said := r.run("systemd-analyze", "verify", "--man=no", "kubelet.service", "slipway-certs-renew.service", renewalTimer,
		"slipway-etcd-snapshot.service", snapshotTimer); said != "" {
		r.t.Errorf("systemd-analyze verify:\n%s", said)
	}
	units, err := filepath.Glob(r.path("/usr/lib/systemd/system/slipway-*"))
	must(r.t, err)
	for _, unit := range units {
		page := documented.FindStringSubmatch(r.read(strings.TrimPrefix(unit, r.dir)))
		if page == nil || !r.has("/usr/share/man/man"+page[2]+"/"+page[1]+"."+page[2]+".gz") {
			r.t.Errorf("%s: no man page %q", unit, page)
		}
	}
	if len(units) != 4 {
		r.t.Errorf("units: %q", units)
	}
}

// wantUntouched compares two results of untouched.
func wantUntouched(t *testing.T, before, after map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("changed: %s", diff)
	}
}
