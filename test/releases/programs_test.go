// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

const older, newer = "1.36", "1.37"

// builtEtcd maps the lab's releases of Kubernetes to their kubeadm's etcd.
var builtEtcd = map[string]string{older: "3.6", newer: "3.7"}

// trial is a command line for programs of both releases.
type trial struct{ program, name, value string }

// TestProgramsRefuseWhatTheTablesSay starts the lab's programs with each flag and feature gate that goes away or is locked
// between the two releases, and with gates whose requirements are off. Each release's program must refuse exactly the command
// lines found to break it.
func TestProgramsRefuseWhatTheTablesSay(t *testing.T) {
	lab, err := parts.New(parts.Options{Components: "../lab/components",
		Dir: cmp.Or(os.Getenv(nodes.DirVariable), "/var/cache/slipway-lab"), Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("../..", tableFile))
	if err != nil {
		t.Fatal(err)
	}
	facts, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	trials := facts.trials()
	needed := map[string]bool{}
	for _, try := range trials {
		needed[try.program] = true
	}
	built := map[string]map[string]string{}
	for _, release := range []string{older, newer} {
		if built[release], err = lab.Programs(t.Context(), release, slices.Collect(maps.Keys(needed))...); err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]int{}
	for _, try := range trials {
		for _, release := range []string{older, newer} {
			want := foundFatal(try, release)
			got, said := refuses(t, built[release][try.program], try)
			if got != want {
				t.Errorf("%s %s --%s=%s: refused %t, but the tables say %t: %s", try.program, release, try.name, try.value, got, want, said)
			}
			if got {
				refused[try.program+" "+release]++
			}
		}
	}
	t.Logf("%d command lines; refused: %v", len(trials), refused)
	if len(trials) < 200 || refused["kube-scheduler "+newer] < 40 || refused["kubelet "+newer] < 18 || refused["etcd "+newer] < 15 {
		t.Error("too few: what was tried is not what the tables have")
	}
}

// trials returns the changes from the older to the newer release, and some gates that need others. The scheduler starts fastest
// and tries all gates, the other programs of the control plane every tenth; the kubelet and kube-proxy don't check gates this
// early.
func (t *table) trials() []trial {
	var list []trial
	gates := 0
	for _, key := range slices.SortedFunc(maps.Keys(t.facts), func(a, b factKey) int {
		return cmp.Or(cmp.Compare(a.program, b.program), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	}) {
		first := older
		if key.program == etcd {
			first = builtEtcd[older]
		}
		column := slices.IndexFunc(columns(key.program), func(m module) bool { return m.minor == first })
		before, after := t.facts[key][column], t.facts[key][column+1]
		switch {
		case key.kind == "flag" && before != absent && after == absent:
			list = append(list, trial{key.program, key.name, "1"})
		case key.kind == "admission" && before != absent && after == absent:
			list = append(list, trial{key.program, "enable-admission-plugins", key.name}, trial{key.program, "disable-admission-plugins", key.name})
		case key.kind == "version" && before != after && strings.Contains(key.name, "/"):
			list = append(list, trial{key.program, "runtime-config", key.name + "=true"})
		case key.kind != "gate" || !slices.Contains([]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}, key.program):
		case before != after || strings.Contains(after, "needs="):
			gates++
			if key.program != "kube-scheduler" && gates%10 != 0 || before == after && gates%5 != 0 {
				continue
			}
			list = append(list, gateTrials(key, before, after)...)
		}
	}
	for _, program := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		for _, all := range []string{"AllAlpha=true", "AllAlpha=false", "AllBeta=true", "AllBeta=false", "AllAlpha=true,AllBeta=true"} {
			list = append(list, trial{program, "feature-gates", all})
		}
	}
	return list
}

// gateTrials sets a gate to each value, and turns off each gate it needs.
func gateTrials(key factKey, before, after string) []trial {
	list := []trial{{key.program, "feature-gates", key.name + "=true"}, {key.program, "feature-gates", key.name + "=false"}}
	for _, state := range []string{before, after} {
		_, needs, _ := strings.Cut(state, "needs=")
		for _, needed := range strings.FieldsFunc(needs, func(r rune) bool { return r == '+' }) {
			list = append(list, trial{key.program, "feature-gates", key.name + "=true," + needed + "=false"})
		}
	}
	return list
}

// foundFatal reports whether the checks find that the command line keeps a release's program from starting.
func foundFatal(try trial, release string) bool {
	from := kubernetes[slices.IndexFunc(kubernetes, func(m module) bool { return m.minor == release })-1].minor
	in := breakages.Inputs{From: from, To: release}
	args := []config.Arg{{Name: try.name, Value: try.value}}
	switch try.program {
	case "kubelet":
		in.Kubelets = []breakages.Kubelet{{Where: "here", Args: args}}
	case etcd:
		in.EtcdVersion = func(string) string { return builtEtcd[release] + ".0" }
		fallthrough
	default:
		in.Commands = []breakages.Command{{Where: "here", Program: try.program, Args: args}}
	}
	return slices.ContainsFunc(breakages.Check(in), func(f fault.Finding) bool { return f.Severity == fault.Error })
}

// refusals are the programs' messages about flags, gates, plugins and API versions that they don't accept. They don't include
// complaints about a flag's value.
var refusals = []string{"unknown flag: ", "flag provided but not defined: ", "unrecognized feature gate: ", "feature is locked to",
	"but depends on features that are disabled", "is unknown", "that has not been registered", "unknown api groups"}

// refuses starts the program and reports whether it refuses the command line. With --version it checks only flags and gates. An
// API server gets further, until it finds that a file is missing: it looks for that file after its plugins and API versions, and
// before it connects to anything. It has no network.
func refuses(t *testing.T, program string, try trial) (refused bool, said string) {
	t.Helper()
	args := []string{"--" + try.name + "=" + try.value}
	reached := ""
	if try.program == "kube-apiserver" && try.name != "feature-gates" {
		args = append(args, serverArgs(t)...)
		reached = "egress selector config"
	} else {
		args = append(args, "--version")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	said = string(out[max(len(out)-300, 0):])
	for _, refusal := range refusals {
		if strings.Contains(string(out), refusal) {
			return true, said
		}
	}
	badValue := strings.Contains(string(out), "invalid argument") || strings.Contains(string(out), "invalid value")
	if err != nil && !badValue && (reached == "" || !strings.Contains(string(out), reached)) {
		t.Errorf("%s %s: %v: %s", program, strings.Join(args, " "), err, said)
	}
	return false, said
}

// serverArgs are the flags that an API server requires before it checks its others.
func serverArgs(t *testing.T) []string {
	dir := t.TempDir()
	key := filepath.Join(dir, "sa.key")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--etcd-servers=http://127.0.0.1:1", "--service-cluster-ip-range=10.96.0.0/12", "--service-account-issuer=https://issuer",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key, "--cert-dir=" + dir, "--secure-port=16443",
		"--advertise-address=192.0.2.1", "--authorization-mode=RBAC", "--egress-selector-config-file=" + filepath.Join(dir, "none")}
}
