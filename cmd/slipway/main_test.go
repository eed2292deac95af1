// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// fullDisk does not take the first write; then there is room again.
type fullDisk struct {
	bytes.Buffer
	writes int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.writes++; d.writes == 1 {
		return 0, errors.New("no space left on device")
	}
	return d.Buffer.Write(p)
}

// TestNothingFollowsWhatIsLost: a run's last event, say, is not there if those
// before it are not.
func TestNothingFollowsWhatIsLost(t *testing.T) {
	disk, said := fullDisk{}, bytes.Buffer{}
	code := execute(t.Context(), "slipway", streams{out: &disk, err: &said}, []string{"init", "phase", "certs", "ca", "-o", "json", "--config", "none.yaml"})
	if code != 1 || disk.writes != 1 || !strings.Contains(said.String(), "none.yaml") {
		t.Errorf("exit code %d, error %q; %d writes, output %q", code, said.String(), disk.writes, disk.String())
	}
}

// TestLostOutputIsAnError where a command does not look for it itself.
func TestLostOutputIsAnError(t *testing.T) {
	disk, said := fullDisk{}, bytes.Buffer{}
	code := execute(t.Context(), "slipway", streams{out: &disk, err: &said}, []string{"token", "generate"})
	want := "slipway: the command did its work, but cannot write the output: no space left on device; run it again to get the output\n"
	if code != 1 || said.String() != want {
		t.Errorf("exit code %d, error %q", code, said.String())
	}
}
