// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/lab/lossy"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// cuts is how many instants of a command get a power cut.
const cuts = 10

// TestCutPrepare, and the tests below, run a command once, on a disk whose writes are noted. Then they make the disks that power
// cuts at ten instants of this run would have left, and boot a node from each: the same command finishes.
func TestCutPrepare(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	d := mountDisk(t)
	m := bare(t)
	m.hasProgram()
	m.must("sync")
	m.cutEverywhere(d, prepareArgs, func(again machine) {
		again.secondPrepareChangesNothing()
		faults, files, err := intact.Images(filepath.Join(again.lab().NodesDir(), "cp-1/disk/containerd"))
		if err != nil || files == 0 || len(faults) > 0 {
			again.Errorf("%d of %d files of the images are damaged or missing (%v):\n%s", len(faults), files, err, strings.Join(faults, "\n"))
		}
	})
}

// slowDisk suits the disks of these tests: beside other tests, a sync may take seconds.
const slowDisk = "timeouts: {controlPlaneComponentHealthCheck: 20m, upgradeManifests: 20m}"

func TestCutInit(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	d := mountDisk(t)
	m := boot(t)
	config := document(slowDisk, podSubnet)
	m.write("/root/slipway.yaml", config)
	m.must("sync")
	m.cutEverywhere(d, []string{"slipway", "init", "--config", "/root/slipway.yaml"}, func(again machine) {
		again.isWhole()
		again.secondInitChangesNothing(config)
	})
}

func TestCutUpgrade(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	d := mountDisk(t)
	m := bootOlder(t)
	if err := m.node.InstallSlipway(); err != nil {
		t.Fatal(err)
	}
	m.init(document(slowDisk, "kubernetesVersion: "+m.node.VersionOf(olderKubernetes)+"\n"+podSubnet))
	m.ready("cp-1")
	m.write("/root/upgrade.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\n"+slowDisk+"\n")
	m.must("sync")
	m.cutEverywhere(d, []string{"slipway", "upgrade", "apply", m.upgradesTo(), "--yes", "--config", "/root/upgrade.yaml", littleRoom}, func(again machine) {
		again.runsVersion(m.upgradesTo())
		again.isWhole()
	})
}

// smallChange changes a flag of the API server and a setting of the kubelet.
const smallChange = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: [{name: profiling, value: 'false'}]}\n" +
	"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 99\n"

// TestCutReconfigure: whenever the power is cut, the node comes back as it was before the change or as it is after it.
func TestCutReconfigure(t *testing.T) {
	tier.OnlyFull(t, "TestNode/reconfigure")
	d := mountDisk(t)
	m := boot(t)
	m.init(document(slowDisk, podSubnet)) // `reconfigure` takes its limits from the startup probes
	m.ready("cp-1")
	command, before, after := m.reconfigureWith(smallChange), m.configuration(), ""
	m.must("sync")
	m.cutDuring(d, func() {
		m.must(command...)
		after = m.configuration()
	}, func(again machine) {
		again.settles()
		if now := again.configuration(); now != before && now != after {
			again.Errorf("it's neither as before nor as after the change (-before +now):\n%s", cmp.Diff(before, now))
		}
		again.must(command...)
		if now := again.configuration(); now != after {
			again.Errorf("the same command leaves (-want +got):\n%s", cmp.Diff(after, now))
		}
		again.must("rm", "-rf", "/etc/kubernetes/tmp") // the cut run's copies
		again.isWhole()
	})
}

// TestRebootOnTrial restarts a machine while a change is on trial, or waits for its confirmation: the machine comes back as it was.
func TestRebootOnTrial(t *testing.T) {
	tier.OnlyFull(t, "TestNode/reconfigure")
	m := boot(t)
	m.init(document("", podSubnet))
	m.ready("cp-1")
	command, before := m.reconfigureWith(smallChange), m.configuration()
	try := append(slices.Clone(command), "--try=30m")
	for _, row := range []struct {
		name    string
		at      string
		ends    func(context.Context) error
		command []string
	}{
		{"shut-down", "On trial", m.shutsDown, command},
		{"lost-power-unconfirmed", "--confirm", m.node.Kill, try},
		{"shut-down-unconfirmed", "--confirm", m.shutsDown, try},
	} {
		m.row(row.name, func(m machine) {
			if !m.killedAt(instant{row.at, 0}, row.ends, row.command...) {
				m.Fatalf("it ended before %q", row.at)
			}
			started := time.Now()
			if err := m.node.Start(m.Context()); err != nil {
				m.Fatal(err)
			}
			m.settles()
			m.Logf("back %.1fs after the start", time.Since(started).Seconds())
			if now := m.configuration(); now != before {
				m.Errorf("it isn't as before (-before +now):\n%s", cmp.Diff(before, now))
			}
			out, err := m.try("slipway", "reconfigure", "--confirm")
			if err == nil {
				m.Errorf("a change that was put back was confirmed:\n%s", out)
			}
			fact.In(m, out, "put back")
		})
	}
	m.must(command...)
	fact.In(m, m.configuration(), "--profiling=false", "maxPods: 99")
	m.healthy(everything)
}

// configuration is the text of this control plane's files, and of the cluster's configuration.
func (m machine) configuration() string {
	m.Helper()
	return m.configured() + m.storedText("kubeadm-config", "ClusterConfiguration") + m.storedText("kubelet-config", "kubelet")
}

// settles waits, after a boot, until the unit that watches a change has done its work, and the node is Ready.
func (m machine) settles() {
	m.Helper()
	_, _ = m.try("systemctl", "is-system-running", "--wait") // it may have failed units
	m.eventually("slipway-watch.service to end", readyLimit, func() error {
		out, _ := m.try("systemctl", "is-active", "slipway-watch.service") // without the unit, too, it prints a state
		if out = strings.TrimSpace(out); out != "inactive" && out != "failed" {
			return errors.New(out)
		}
		return nil
	})
	m.ready(m.node.Name())
}

// shutsDown shuts the machine down in order.
func (m machine) shutsDown(ctx context.Context) error {
	if out, err := m.try("systemctl", "poweroff"); err != nil {
		m.Logf("systemctl poweroff: %v: %s", err, out) // it may be gone before the answer
	}
	for m.node.Running() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the machine has not shut down: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// mountDisk mounts a disk, whose writes are noted, for the nodes of a test's lab.
func mountDisk(t *testing.T) *lossy.Disk {
	t.Helper()
	d, err := lossy.New(t.Context(), t.TempDir(), openLab(t, labName(t), "").NodesDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// cutEverywhere runs a command, and afterwards again on a node for each instant of a power cut.
func (m machine) cutEverywhere(d *lossy.Disk, command []string, then func(again machine)) {
	m.Helper()
	m.cutDuring(d, func() { m.must(command...) }, func(again machine) {
		again.must(command...)
		then(again)
	})
}

// cutDuring boots a node for each instant of a power cut during run.
func (m machine) cutDuring(d *lossy.Disk, run func(), then func(again machine)) {
	m.Helper()
	from, err := d.Instant()
	if err != nil {
		m.Fatal(err)
	}
	run()
	to, err := d.Instant()
	if err != nil {
		m.Fatal(err)
	}
	if err := m.node.Kill(m.Context()); err != nil {
		m.Fatal(err)
	}
	if err := d.Close(); err != nil {
		m.Fatal(err)
	}
	for i := range cuts {
		// The last instant is the moment after the command has said that it's done.
		at := from + (to-from)*uint64(i+1)/cuts
		m.Run(fmt.Sprint(i+1), func(t *testing.T) {
			then(cutNode(t, d, at, from, to))
		})
	}
}

// cutNode boots the node that a power cut leaves after so many writes and flushes of its disk.
func cutNode(t *testing.T, d *lossy.Disk, at, from, to uint64) machine {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	lost, err := d.Cut(t.Context(), disk, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cut after %d of %d writes and flushes, of which %d were lost", at-from, to-from, lost)
	lab := openLab(t, labName(t), "")
	downAfter(t, lab)
	if err := lossy.Mount(t.Context(), disk, lab.NodesDir()); err != nil {
		t.Fatal(err)
	}
	if torn, err := intact.Torn(filepath.Join(lab.NodesDir(), "cp-1/upper")); err != nil || len(torn) > 0 {
		t.Errorf("torn files: %v (%v)", torn, err)
	}
	node, err := lab.StartNode(t.Context(), nodes.NodeSpec{Name: "cp-1"})
	if err != nil {
		t.Fatal(err)
	}
	m := machine{t, node}
	t.Cleanup(func() {
		if t.Failed() {
			m.explain()
		}
	})
	return m
}

// lab returns the lab of a test that made its own.
func (m machine) lab() *nodes.Lab { return openLab(m.T, labName(m.T), "") }
