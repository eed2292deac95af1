// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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

func TestCutInit(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	d := mountDisk(t)
	m := boot(t)
	config := document("", podSubnet)
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
	m.init(document("", "kubernetesVersion: "+m.node.VersionOf(olderKubernetes)+"\n"+podSubnet))
	m.ready("cp-1")
	m.must("sync")
	m.cutEverywhere(d, []string{"slipway", "upgrade", "apply", m.upgradesTo(), "--yes", littleRoom}, func(again machine) {
		again.runsVersion(m.upgradesTo())
		again.isWhole()
	})
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
	from, err := d.Instant()
	if err != nil {
		m.Fatal(err)
	}
	m.must(command...)
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
			again := cutNode(t, d, at, from, to)
			again.must(command...)
			then(again)
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
