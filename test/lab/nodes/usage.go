// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// ProcessorTime returns the processor time that all nodes of the lab have used so far, including removed ones. It's 0 before the
// first boot, and after Down.
func (l *Lab) ProcessorTime() (time.Duration, error) {
	all, err := machineHierarchies()
	if err != nil {
		return 0, err
	}
	for _, dir := range cgroupDirs(all, l.cgroupName()) {
		if used, err := usage(dir); !os.IsNotExist(err) {
			return used, errors.Wrap(err, "cannot read the lab's processor time")
		}
	}
	return 0, nil
}

// usage returns a cgroup's processor time, if its hierarchy counts it.
func usage(dir string) (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")) // version 1, in nanoseconds
	if err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return time.Duration(ns), err
	}
	if data, err = os.ReadFile(filepath.Join(dir, "cpu.stat")); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) { // version 2, in microseconds; version 1 has other lines
		if text, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, os.ErrNotExist
}
