// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       time.Duration
		missing    bool
	}{
		"version 1":                  {"cpuacct.usage", "1500000000\n", 1500 * time.Millisecond, false},
		"version 2":                  {"cpu.stat", "usage_usec 2500000\nuser_usec 1\n", 2500 * time.Millisecond, false},
		"version 1, the other cpu":   {"cpu.stat", "nr_periods 0\n", 0, true},
		"a hierarchy without either": {"memory.stat", "", 0, true},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := usage(dir); got != c.want || os.IsNotExist(err) != c.missing {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
