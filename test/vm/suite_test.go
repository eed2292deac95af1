// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package vm runs slipway in a virtual machine with a stock Debian 13: its own kernel, cgroup v2, AppArmor, and a disk that loses
// unflushed writes in a power cut. It needs root, the bundle in dist/ and the package in bin/packages/.
package vm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/lab/qemu"
)

// The files on the machines' second disk.
const (
	bundlePath = "/mnt/bundle.tar"
	debPath    = "/mnt/slipway.deb"
	probePath  = "/mnt/probe.tar"
)

// Emulated machines are about 15 times slower than this one. Only a fault takes as long as these limits.
const (
	bootLimit    = 30 * time.Minute
	commandLimit = 6 * time.Hour    // also for `up` on a bare machine, beside other work
	podLimit     = 45 * time.Minute // also for anything else that waits for Pods or the API
	explainLimit = 10 * time.Minute // for all that a failed test has to say
)

// machine is a virtual machine, with methods for the tests' actions on it.
type machine struct {
	*testing.T
	*qemu.Machine
}

// Name is the machine's, not the test's.
func (m machine) Name() string { return m.Machine.Name }

func openLab(t *testing.T) *nodes.Lab { t.Helper(); return openLabOf(t, runtime.GOARCH) }

func openLabOf(t *testing.T, architecture string) *nodes.Lab {
	t.Helper()
	lab, err := nodes.Open(nodes.Options{Name: "vm", Architecture: architecture, BuildLog: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// only returns the only file that a pattern matches.
func only(t *testing.T, pattern, made string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("there are %d files %s, and one is needed: `%s` makes it (%v)", len(found), pattern, made, err)
	}
	return found[0]
}

// share makes the machines' second disk.
func share(t *testing.T, lab *nodes.Lab) string { t.Helper(); return shareWith(t, lab, nil) }

// shareWith also puts further files there.
func shareWith(t *testing.T, lab *nodes.Lab, more map[string]string) string {
	t.Helper()
	dir, err := lab.BundleParts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		filepath.Base(bundlePath): bundleFor(t, lab),
		filepath.Base(debPath):    packageOf(t, lab.Architecture()),
		filepath.Base(probePath):  filepath.Join(dir, nodes.ProbeArchive),
	}
	maps.Copy(files, more)
	disk := filepath.Join(t.TempDir(), "share")
	if err := qemu.MakeShare(t.Context(), disk, files); err != nil {
		t.Fatal(err)
	}
	return disk
}

// newMachine makes a machine that's off, with further Debian packages.
func newMachine(t *testing.T, change func(*qemu.Options), packages ...string) machine {
	t.Helper()
	return newMachineOf(t, openLab(t), change, packages...)
}

func newMachineOf(t *testing.T, lab *nodes.Lab, change func(*qemu.Options), packages ...string) machine {
	t.Helper()
	disk, err := lab.Disk(t.Context(), packages...)
	if err != nil {
		t.Fatal(err)
	}
	o := qemu.Options{Name: "cp-1", Dir: t.TempDir(), Disk: disk}
	if change != nil {
		change(&o)
	}
	if o.Share == "" {
		o.Share = share(t, lab)
	}
	return offMachine(t, o)
}

func offMachine(t *testing.T, o qemu.Options) machine {
	t.Helper()
	here, err := qemu.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return adopt(t, here)
}

// adopt gives a machine to a test.
func adopt(t *testing.T, here *qemu.Machine) machine {
	m := machine{t, here}
	t.Cleanup(func() {
		if t.Failed() && m.Running() {
			m.explain()
		}
		m.Kill()
	})
	return m
}

// boots switches the machine on, and waits until systemd has nothing more to start. No unit may fail.
func (m machine) boots() {
	m.Helper()
	if failed := m.bootsAnyhow(); failed != "" {
		m.Error(failed)
	}
}

// bootsAnyhow returns which units fail.
func (m machine) bootsAnyhow() (failed string) {
	m.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(m.Context(), bootLimit)
	defer cancel()
	if err := m.Boot(ctx); err != nil {
		m.Fatal(err)
	}
	m.switchesLess()
	if out, err := m.tryFor(ctx, "systemctl", "is-system-running", "--wait"); err != nil {
		units, _ := m.tryFor(ctx, "systemctl", "--failed", "--no-pager")
		failed = fmt.Sprintf("%s is %s%v\n%s", m.Name(), out, err, units)
	}
	m.Logf("%s booted in %s", m.Name(), since(started))
	return failed
}

// switchesLess makes an emulated machine's processors change less often from one process to another. After each change, QEMU looks up
// again the addresses of all memory and code, in which it spends more than half of its time if many processes want to run.
func (m machine) switchesLess() {
	m.Helper()
	if !m.Emulated() {
		return
	}
	m.write("/sys/kernel/debug/sched/base_slice_ns", "30000000")
	m.write("/sys/kernel/debug/sched/features", "NO_WAKEUP_PREEMPTION")
	m.must("mkdir", "--parents", "/etc/systemd/system.conf.d")
	m.write("/etc/systemd/system.conf.d/lab.conf", "[Manager]\nDefaultEnvironment=GOMAXPROCS=1\n")
	m.must("systemctl", "daemon-reexec")
}

// shutsDown switches the machine off in order.
func (m machine) shutsDown() {
	m.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(m.Context(), bootLimit)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		m.Fatal(err)
	}
	m.Logf("%s shut down in %s", m.Name(), since(started))
}

// losesPower switches the machine off in the middle of everything, and on again.
func (m machine) losesPower() {
	m.Helper()
	kept, err := m.PowerCut()
	if err != nil {
		m.Fatal(err)
	}
	m.Logf("%s lost its power; its disk kept %d writes and flushes", m.Name(), kept)
	m.boots()
}

func since(started time.Time) time.Duration { return time.Since(started).Round(time.Second) }

// try runs a command on the machine and returns all its output.
func (m machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	return m.tryFor(ctx, args...)
}

func (m machine) tryFor(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := m.Exec(ctx, qemu.Cmd{Args: args, Stdout: &out, Stderr: &out})
	return out.String(), err
}

// must runs a command that must succeed, and returns its standard output.
func (m machine) must(args ...string) string {
	m.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(m.Context(), commandLimit)
	defer cancel()
	if err := m.Exec(ctx, qemu.Cmd{Args: args, Stdout: &out, Stderr: &errs}); err != nil {
		m.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// takes runs a command that must succeed, shows its output as it comes, and logs how long it took.
func (m machine) takes(args ...string) string {
	m.Helper()
	said := &transcript{m: m, started: time.Now()}
	m.Logf("$ %s", strings.Join(args, " "))
	ctx, cancel := context.WithTimeout(m.Context(), commandLimit)
	defer cancel()
	err := m.Exec(ctx, qemu.Cmd{Args: args, Stdout: said, Stderr: said})
	m.Logf("%s took %s: %v", args[0], since(said.started), err)
	if err != nil {
		m.FailNow()
	}
	return string(said.said)
}

// transcript logs each line with its time, as a command may take half an hour.
type transcript struct {
	said    []byte
	m       machine
	started time.Time
	logged  int
}

func (t *transcript) Write(p []byte) (int, error) {
	t.said = append(t.said, p...)
	for {
		line, _, found := strings.Cut(string(t.said[t.logged:]), "\n")
		if !found {
			return len(p), nil
		}
		t.logged += len(line) + 1
		t.m.Logf("%5.0fs %s", time.Since(t.started).Seconds(), line)
	}
}

func (m machine) write(path, content string) {
	m.Helper()
	if err := m.WriteFile(m.Context(), path, []byte(content)); err != nil {
		m.Fatal(err)
	}
}

// installs installs the package under test, as an administrator does.
func (m machine) installs() { m.Helper(); m.must("dpkg", "--install", debPath) }

// fleeting are the beginnings of lines in a machine's state that differ from boot to boot: random and estimated numbers, the
// kernel's warnings, systemd's units that only run at the first boot, and the documents of the package, which may be newer than a saved
// machine.
var fleeting = []string{
	"/proc/sys/kernel/tainted:", "/proc/sys/kernel/threads-max:", "/proc/sys/net/ipv4/tcp_mem:", "/proc/sys/net/ipv4/udp_mem:",
	"/proc/sys/net/ipv4/tcp_fastopen_key:", "/proc/sys/vm/user_reserve_kbytes:", "active ldconfig.service",
	"/usr/share/doc/slipway/", "/usr/share/man/man8/slipway",
	"active systemd-journal-catalog-update.service", "active systemd-sysusers.service", "active systemd-update-done.service",
}

// state lists everything a cluster may change on a host, one per line: see the script.
func (m machine) state() []string {
	m.Helper()
	script, err := os.ReadFile("../e2e/testdata/host-state.sh")
	if err != nil {
		m.Fatal(err)
	}
	m.write("/root/host-state.sh", string(script))
	return slices.Collect(strings.Lines(m.must("sh", "/root/host-state.sh")))
}

// explain prints just enough to understand a failure.
func (m machine) explain() {
	ctx, cancel := context.WithTimeout(context.Background(), explainLimit)
	defer cancel()
	for _, args := range [][]string{
		{"systemctl", "--failed", "--no-pager"},
		{"journalctl", "--no-pager", "-o", "cat", "-k", "-p", "warning", "-n", "12"},
		{"journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", "12"},
		{"journalctl", "--no-pager", "-o", "cat", "-u", "containerd", "-n", "12"},
		{"slipway", "diagnose"},
		kubectl("get", "pods,nodes", "-A"),
	} {
		out, _ := m.tryFor(ctx, args...)
		m.Logf("$ %s\n%s", strings.Join(args, " "), out)
	}
}

// eventually waits for a condition.
func (m machine) eventually(what string, limit time.Duration, ok func() error) {
	m.Helper()
	deadline := time.Now().Add(limit)
	for {
		asked := time.Now()
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(max(5*time.Second, 5*time.Since(asked))) // kubectl takes seconds on an emulated processor
	}
}

// isAsBefore fails if the states before and after aren't the same.
func (m machine) isAsBefore(before, after []string) {
	m.Helper()
	for _, side := range []struct {
		sign      string
		of, other []string
	}{{"-", before, after}, {"+", after, before}} {
		known := map[string]bool{}
		for _, line := range side.other {
			known[line] = true
		}
		for _, line := range side.of {
			if !known[line] && !slices.ContainsFunc(fleeting, func(start string) bool { return strings.HasPrefix(line, start) }) {
				m.Errorf("%s%s", side.sign, strings.TrimSpace(line))
			}
		}
	}
}
