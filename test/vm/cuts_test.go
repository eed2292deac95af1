// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/test/intact"
)

// cuts is how many instants of a command get a power cut.
const cuts = 10

// TestPowerCutsOfHostPrepare, and the tests below, run a command once, noting every write. Then they make the disks that power
// cuts at ten instants of this run would have left, and look at each: the same command finishes on it.
func TestPowerCutsOfHostPrepare(t *testing.T) {
	m := newMachine(t, nil)
	m.boots()
	m.installs()
	m.cutEverywhere(prepareArgs, func(again machine) {
		again.isPrepared()
		again.shutsDown()
		again.hasWholeImages()
	})
}

func TestPowerCutsOfInit(t *testing.T) {
	m, _ := prepared(t, nil)
	m.boots()
	m.write("/root/up.yaml", upConfig)
	m.must("sync")
	m.cutEverywhere([]string{"slipway", "init", "--config", "/root/up.yaml", "--network", "flannel"}, func(again machine) {
		again.kubectl("get", "--raw", "/readyz")
	})
}

func TestPowerCutsOfUpgrade(t *testing.T) {
	m := bootOlder(t)
	m.takes("slipway", "host", "prepare", "phase", "images", "--bundle", bundlePath)
	m.must("sync")
	m.cutEverywhere(upgradeArgs(t), func(again machine) { again.runsPod() })
}

// cutEverywhere runs a command, and afterwards again on a machine for each instant of a power cut.
func (m machine) cutEverywhere(command []string, then func(again machine)) {
	m.Helper()
	from, err := m.Instant()
	if err != nil {
		m.Fatal(err)
	}
	m.takes(command...)
	to, err := m.Instant()
	if err != nil {
		m.Fatal(err)
	}
	m.Kill()
	for i := range cuts {
		// The last instant is the moment after the command has said that it's done.
		at := from + (to-from)*uint64(i+1)/cuts
		m.Run(fmt.Sprintf("%d of %d", i+1, cuts), func(t *testing.T) {
			o := m.Options
			o.Dir = t.TempDir()
			here, lost, err := m.Cut(t.Context(), o, at)
			if err != nil {
				t.Fatal(err)
			}
			again := adopt(t, here)
			again.Logf("cut after %d of %d writes and flushes, of which it lost %d", at-from, to-from, lost)
			again.hasNoTornFiles()
			again.boots()
			again.takes(command...)
			then(again)
		})
	}
}

// hasNoTornFiles looks at the disk of a machine that's off.
func (m machine) hasNoTornFiles() {
	m.Helper()
	err := m.Inspect(m.Context(), func(root string) error {
		return errors.Join(emptyFiles(filepath.Join(root, "etc/kubernetes")), intact.Check(root))
	})
	if err != nil {
		m.Error(err)
	}
}

func emptyFiles(dir string) error {
	var empty []error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() == 0 {
			empty = append(empty, fmt.Errorf("%s is empty", path))
		}
		return err
	})
	return errors.Join(append(empty, err)...)
}
