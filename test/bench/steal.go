// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/procfs"
)

// cpuTime returns the seconds that this machine's processors have had since it
// booted, and those of them that its hypervisor gave to others meanwhile.
func cpuTime() (all, stolen float64, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, 0, err
	}
	c := stat.CPUTotal // guests are part of user and nice
	return c.User + c.Nice + c.System + c.Idle + c.Iowait + c.IRQ + c.SoftIRQ + c.Steal, c.Steal, nil
}

// watchSteal returns a function that tells how much of the processors' time,
// in percent, others have taken since then.
func watchSteal() (func() (float64, error), error) {
	all, stolen, err := cpuTime()
	if err != nil {
		return nil, err
	}
	return func() (float64, error) {
		allNow, stolenNow, err := cpuTime()
		if err != nil || allNow == all {
			return 0, err
		}
		return 100 * (stolenNow - stolen) / (allNow - all), nil
	}, nil
}
