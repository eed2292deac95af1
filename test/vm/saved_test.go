// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/slipway-k8s/slipway/test/lab/qemu"
)

// savedDir keeps a prepared machine's disks, so that other tests needn't prepare one, in this run or a later one.
const savedDir = "../../bin/vm"

// saved describes the disks in savedDir.
type saved struct {
	Key   string   // the hash of everything they were made from
	State []string // the machine's, before it was prepared
}

// savedKey changes with the Debian and the bundle. Each build of a Debian has another key that lets root in. A package of another
// commit doesn't change it: TestHostPrepare is the test of that.
func savedKey(m machine) string {
	m.Helper()
	h := sha256.New()
	for _, path := range []string{m.Disk.Key, bundleOf(m.T, runtime.GOARCH)} {
		sum, err := fileSum(path)
		if err != nil {
			m.Fatal(err)
		}
		h.Write(sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func fileSum(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// savesPrepared keeps the disks of a prepared machine that's off.
func (m machine) savesPrepared(before []string) {
	m.Helper()
	if err := os.RemoveAll(savedDir); err != nil {
		m.Fatal(err)
	}
	if err := os.MkdirAll(savedDir, 0o755); err != nil {
		m.Fatal(err)
	}
	if err := m.Save(m.Context(), savedDir); err != nil {
		m.Fatal(err)
	}
	data, err := json.Marshal(saved{savedKey(m), before})
	if err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(savedDir, "saved.json"), data, 0o644); err != nil {
		m.Fatal(err)
	}
}

// prepared makes a machine that's prepared, with swap that was on before, and off. It also returns the state before. The disks
// it saves are those of a machine without change.
func prepared(t *testing.T, change func(*qemu.Options)) (m machine, before []string) {
	t.Helper()
	m = newMachine(t, func(o *qemu.Options) { o.Swap = true })
	var s saved
	data, err := os.ReadFile(filepath.Join(savedDir, "saved.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.Key != savedKey(m) {
		m.boots()
		m.getsSwap()
		m.installs()
		s.State = m.state()
		m.takes(prepareArgs...)
		m.shutsDown()
		m.savesPrepared(s.State)
	}
	o := m.Options
	o.From = savedDir
	if change != nil {
		change(&o)
	}
	return offMachine(t, o), s.State
}
