// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestPackageVersion has versions in the order in which they replace each other, and compares it with dpkg's and rpm's.
func TestPackageVersion(t *testing.T) {
	earlier := time.Date(2026, 11, 23, 22, 32, 38, 0, time.UTC)
	later := earlier.Add(time.Minute).In(time.FixedZone("east", 3600))
	versions := []struct {
		version string
		date    time.Time
		want    string
	}{
		{"v0.0.0-ff12345", earlier, "0.0.0~git20261123223238.ff12345"},
		{"v0.0.0-1234567", later, "0.0.0~git20261123223338.1234567"},
		{"v0.0.0-1234567-dirty", later, "0.0.0~git20261123223338.1234567+dirty"},
		{"v1.2.3-alpha.2", later, "1.2.3~alpha.2"},
		{"v1.2.3-rc.1", later, "1.2.3~rc.1"},
		{"v1.2.3-rc.1-12-g2ede596", later, "1.2.3~rc.1+12.g2ede596"},
		{"v1.2.3", earlier, "1.2.3"},
		{"v1.2.3-5-g2ede596", later, "1.2.3+5.g2ede596"},
		{"v1.2.3-5-g2ede596-dirty", later, "1.2.3+5.g2ede596.dirty"},
		{"v1.2.4", later, "1.2.4"},
	}
	debian(t) // and rpm with it
	for i, v := range versions {
		got, err := packageVersion(v.version, v.date)
		if err != nil || got != v.want {
			t.Errorf("%s: %q, %v; want %q", v.version, got, err, v.want)
		}
		if i == 0 {
			continue
		}
		before := versions[i-1].want
		if err := exec.Command("dpkg", "--compare-versions", before, "lt", v.want).Run(); err != nil {
			t.Errorf("dpkg: %s is not before %s: %v", before, v.want, err)
		}
		order, err := exec.Command("rpm", "--eval", "%{lua:print(rpm.vercmp('"+before+"', '"+v.want+"'))}").CombinedOutput()
		if strings.TrimSpace(string(order)) != "-1" {
			t.Errorf("rpm: %s is not before %s: %s, %v", before, v.want, order, err)
		}
	}
	for _, wrong := range []string{"", "1.2.3", "v1.2", "v1.2.3_4", "v1.2.3-dirty-x y"} {
		if got, err := packageVersion(wrong, later); err == nil {
			t.Errorf("%q is taken for %q", wrong, got)
		}
	}
}
