// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// bundlePath is the bundle's path on a node.
const bundlePath = "/root/bundle.tar"

var prepareArgs = []string{"slipway", "host", "prepare", "--bundle", bundlePath, "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors}

// TestHostPrepare makes a cluster of two machines with only an init system, in a network without a way out. It reboots them, and
// takes everything back. The control plane has Slipway from its package, the worker only the program, in a /usr/local of its own.
func TestHostPrepare(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := bare(t)
	m.installsPackage(slipwayPackage(t))
	w := m.anotherBare("worker-1")
	w.separatesLocal()
	w.hasProgram()
	before := map[string][]string{}
	for _, n := range []machine{m, w} {
		before[n.node.Name()] = n.everyState()
		n.preparePlanIsTrue()
		n.prepares()
		n.secondPrepareChangesNothing()
		if err := n.node.ConfigurePods(); err != nil {
			t.Fatal(err)
		}
		n.must("ctr", "--namespace=k8s.io", "images", "import", "/root/probe.tar")
	}
	args := m.initForJoin(document("", podSubnet))
	m.join(w, append([]string{"slipway", "join"}, args...)...)
	m.ready("worker-1")
	m.healthy(everything)

	for _, n := range []machine{m, w} {
		if err := n.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.eventually("the API after a boot", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw", "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.ready("worker-1")
	m.healthy(everything)
	for _, n := range []machine{m, w} {
		pid := strings.TrimSpace(n.must("systemctl", "show", "kubelet", "-p", "MainPID", "--value"))
		if program := n.must("readlink", "/proc/"+pid+"/exe"); program != "/usr/local/bin/kubelet\n" {
			t.Errorf("%s: the kubelet that was booted is %s", n.node.Name(), program)
		}
	}
	m.refusesHostReset()
	m.keepsPinnedImages()

	for _, n := range []machine{w, m} {
		n.must("slipway", "reset", "--force", "--network")
		n.must("rm", "/etc/cni/net.d/10-lab.conflist")
		n.must("slipway", "host", "reset")
		n.isBareAgain(before[n.node.Name()])
	}
}

// separatesLocal puts /usr/local on a file system that systemd mounts at boot, as openSUSE does.
func (m machine) separatesLocal() {
	m.Helper()
	m.must("cp", "--archive", "/usr/local", "/srv/local")
	m.write("/etc/fstab", "/srv/local /usr/local none bind 0 0\n")
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "start", "usr-local.mount")
}

// prepareInstants are 10 instants spread over host prepare. Those of a row occur in order on one way to a prepared host, far
// enough apart that a run killed at one doesn't reach the next.
var prepareInstants = [][]instant{
	{
		{"[preflight] Checking", 0},
		{"[kernel] Set net.ipv4.ip_forward", 0},
		{"[programs] Verifying", 300 * time.Millisecond},
		{"[container-runtime] Starting containerd.service", 0},
		{"[kubelet] Writing /etc/systemd/system/kubelet.service.d/20-slipway.conf", 0},
		{"[images] Importing", 500 * time.Millisecond},
	},
	{
		{"[kernel] Writing /etc/sysctl.d/90-slipway.conf", 0},
		{"[programs] Verifying", 0},
		{"[container-runtime] Writing /etc/containerd/config.toml", 0},
		{"[images] Importing", 0},
	},
}

// TestHostPrepareKilled runs the same command again and again, and kills it each time at a later instant; the last run finishes,
// and then everything is taken back.
func TestHostPrepareKilled(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := bare(t)
	m.hasProgram()
	before := m.everyState()
	late := 0
	for _, way := range prepareInstants {
		for _, at := range way {
			if !m.killedAt(at, nothingMore, prepareArgs...) {
				late++
				m.Logf("it ended before %s", at)
			}
		}
		m.prepares()
		if left := m.must("find", "/usr/local", "/opt", "/etc", "-name", ".*.slipway-*"); left != "" {
			t.Errorf("the killed runs left:\n%s", left)
		}
		m.secondPrepareChangesNothing()
		m.must("slipway", "host", "reset")
		m.isBareAgain(before)
	}
	if late > 3 {
		t.Errorf("%d runs finished before they were killed", late)
	}
}

// bare boots a machine with an init system and nothing of Kubernetes' needs, and puts the bundle on its disk.
func bare(t *testing.T) machine {
	t.Helper()
	beside(t, nodes.NodeSpec{Bare: true})
	downAfter(t, openLab(t, labName(t), ""))
	return machine{T: t}.anotherBare("cp-1")
}

func (m machine) anotherBare(name string) machine {
	m.Helper()
	lab := openLab(m.T, labName(m.T), "")
	node, err := lab.StartNode(m.Context(), nodes.NodeSpec{Name: name, Bare: true})
	if err != nil {
		m.Fatal(err)
	}
	n := machine{m.T, node}
	m.Cleanup(func() {
		if m.Failed() {
			n.explain()
		}
	})
	bundle := bundleHere(m.T)
	parts, err := lab.BundleParts(m.Context(), "")
	if err != nil {
		m.Fatal(err)
	}
	for from, to := range map[string]string{bundle: bundlePath, filepath.Join(parts, nodes.ProbeArchive): "/root/probe.tar"} {
		if err := node.CopyIn(from, to); err != nil {
			m.Fatal(err)
		}
	}
	n.eventually("the boot to end", readyLimit, func() error {
		if out, _ := n.try("systemctl", "is-system-running"); strings.TrimSpace(out) != "running" {
			return fmt.Errorf("systemd is %s", out)
		}
		return nil
	})
	return n
}

func bundleHere(t *testing.T) string {
	t.Helper()
	bundles, err := filepath.Glob("../../dist/slipway-bundle-*-linux-" + runtime.GOARCH + ".tar")
	if err != nil || len(bundles) != 1 {
		t.Fatalf("there are %d bundles in dist/, and one is needed: run `make bundle` (%v)", len(bundles), err)
	}
	return bundles[0]
}

// hasProgram puts the program under test where people install programs by hand.
func (m machine) hasProgram() {
	m.Helper()
	if err := m.node.InstallSlipway(); err != nil {
		m.Fatal(err)
	}
}

// slipwayPackage returns the path of the deb with the program under test.
func slipwayPackage(t *testing.T) string {
	t.Helper()
	debs, err := filepath.Glob("../../bin/packages/*_" + runtime.GOARCH + ".deb")
	if err != nil || len(debs) != 1 {
		t.Fatalf("there are %d packages in bin/packages/, and one is needed: `make e2e` makes it (%v)", len(debs), err)
	}
	return debs[0]
}

// installsPackage installs a deb, and returns dpkg's output.
func (m machine) installsPackage(deb string) string {
	m.Helper()
	if err := m.node.CopyIn(deb, "/root/slipway.deb"); err != nil {
		m.Fatal(err)
	}
	out, err := m.try("dpkg", "--install", "/root/slipway.deb")
	if err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	return out
}

func (m machine) prepares() {
	m.Helper()
	started := time.Now()
	m.must(prepareArgs...)
	m.Logf("host prepare took %.1fs", time.Since(started).Seconds())
}

// preparePlanIsTrue makes a plan, which changes nothing, and compares it with a run of the same command.
func (m machine) preparePlanIsTrue() {
	m.Helper()
	before := m.everyState()
	plan := m.must(append(prepareArgs, "--dry-run")...)
	for _, step := range []string{
		"write /usr/local/bin/kubelet 0755", "write /opt/cni/bin/bridge 0755", "net.ipv4.ip_forward=1",
		"write /etc/containerd/config.toml 0644", "start unit containerd.service", "enable unit kubelet.service",
		"import image registry.k8s.io/pause:",
	} {
		if !strings.Contains(plan, step) {
			m.Errorf("the plan lacks %q:\n%s", step, plan)
		}
	}
	if diff := cmp.Diff(before, m.everyState()); diff != "" {
		m.Errorf("a plan changed something (-before +after):\n%s", diff)
	}
}

func (m machine) secondPrepareChangesNothing() {
	m.Helper()
	const nothing = "Plan: 0 steps."
	if plan := m.must(append(prepareArgs, "--dry-run")...); !strings.Contains(plan, nothing) {
		m.Errorf("there is something to do on a prepared host:\n%s", plan)
	}
	runs := func() string {
		return m.must("systemctl", "show", "containerd", "-p", "MainPID") + m.must("find", "/etc", "/usr/local", "/opt/cni", "/var/lib/slipway", "-printf", `%p %m %T@\n`)
	}
	before := runs()
	m.must(prepareArgs...)
	if diff := cmp.Diff(before, runs()); diff != "" {
		m.Errorf("a second run changed something (-before +after):\n%s", diff)
	}
}

// refusesHostReset checks that host reset leaves a node alone.
func (m machine) refusesHostReset() {
	m.Helper()
	out, err := m.try("slipway", "host", "reset")
	if err == nil || !strings.Contains(out, "NoNode") {
		m.Errorf("host reset on a node: %v\n%s", err, out)
	}
}

// keepsPinnedImages makes the kubelet remove all images that no container uses, by claiming that the disk is full: the bundle's
// stay.
func (m machine) keepsPinnedImages() {
	m.Helper()
	images := func() []string {
		return strings.Fields(m.must("ctr", "--namespace=k8s.io", "images", "ls", "--quiet"))
	}
	bundled := slices.DeleteFunc(images(), func(name string) bool { return !strings.HasPrefix(name, "registry.k8s.io/") })
	config := m.must("cat", "/var/lib/kubelet/config.yaml")
	full := config
	for now, then := range map[string]string{"imagefs.available: 0%": "imagefs.available: 99%", "imageMinimumGCAge: 0s": "imageMinimumGCAge: 1s"} {
		if !strings.Contains(config, now) {
			m.Fatalf("the kubelet's configuration has no %q:\n%s", now, config)
		}
		full = strings.Replace(full, now, then, 1)
	}
	m.write("/var/lib/kubelet/config.yaml", full)
	m.must("systemctl", "restart", "kubelet")
	m.eventually("the kubelet to remove unused images", readyLimit, func() error {
		if slices.Contains(images(), nodes.ProbeImage) {
			return fmt.Errorf("%s is still there", nodes.ProbeImage)
		}
		return nil
	})
	stay := func(who string) {
		left := images()
		for _, name := range bundled {
			if !slices.Contains(left, name) {
				m.Errorf("%s removed %s", who, name)
			}
		}
	}
	stay("the kubelet")
	m.write("/var/lib/kubelet/config.yaml", config)
	m.must("systemctl", "restart", "kubelet")
	m.must("ctr", "--namespace=k8s.io", "images", "import", "/root/probe.tar")
	m.must("crictl", "rmi", "--prune")
	if slices.Contains(images(), nodes.ProbeImage) {
		m.Errorf("crictl did not remove %s, so it tells nothing of the others", nodes.ProbeImage)
	}
	stay("crictl")
}

// everyState lists everything a cluster may change on a host, one per line: files, mounts, swap, the network's
// configuration, kernel parameters and units.
func (m machine) everyState() []string {
	m.Helper()
	script, err := os.ReadFile("testdata/host-state.sh")
	if err != nil {
		m.Fatal(err)
	}
	m.write("/root/host-state.sh", string(script))
	return slices.Collect(strings.Lines(m.must("sh", "/root/host-state.sh")))
}

// isBareAgain compares a host with its former state.
func (m machine) isBareAgain(before []string) {
	m.Helper()
	if diff := cmp.Diff(before, m.everyState()); diff != "" {
		m.Errorf("%s is not what it was before (-before +after):\n%s", m.node.Name(), diff)
	}
}
