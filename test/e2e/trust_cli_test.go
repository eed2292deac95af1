// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"regexp"
	"strings"
)

// answersAsKubeadm runs Slipway through a link named kubeadm, and compares it with kubeadm: the same version in the
// same form, and the same exit codes where nothing is done.
func answersAsKubeadm(m machine) {
	const link = "/root/kubeadm"
	m.must("ln", "-s", "/usr/local/bin/slipway", link)
	for _, form := range []string{"", "short", "json", "yaml"} {
		got, want := sameBuild(m.must(link, "version", "-o", form)), sameBuild(m.must("kubeadm", "version", "-o", form))
		if got != want {
			m.Errorf("version -o %q:\n%s\nkubeadm's:\n%s", form, got, want)
		}
	}
	for _, group := range []string{
		"", "help", "token", "token wrong", "config", "config print", "config images", "certs", "certs renew", "certs renew wrong",
		"kubeconfig", "init phase", "init phase wrong", "init phase certs", "join phase", "join phase control-plane-prepare", "reset phase",
	} {
		if got, want := m.exit(link, group), m.exit("kubeadm", group); got != want {
			m.Errorf("%q: %s, kubeadm's %s", group, got, want)
		}
	}
	out, err := m.try("slipway", "help", "wrong")
	if err == nil || !strings.Contains(out, `"wrong"`) {
		m.Errorf("help of nothing: %v, %s", err, out)
	}
}

// exit describes how a command line ended, and where it printed.
func (m machine) exit(program, args string) string {
	m.Helper()
	out := m.must("sh", "-c", program+" "+args+" >/tmp/out 2>/tmp/err; echo exit $?; "+
		"test -s /tmp/out && echo output; test -s /tmp/err && echo error; true")
	return strings.Join(strings.Fields(out), " ")
}

// ofBuild matches what differs between two builds of the same version.
var ofBuild = regexp.MustCompile(`(?i)((?:GitCommit|GitTreeState|BuildDate|GoVersion)"?: ?"?)[^",\n]*`)

func sameBuild(version string) string { return ofBuild.ReplaceAllString(version, "$1") }
