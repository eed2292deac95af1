// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pkg/errors"
	"github.com/prometheus/procfs"
)

// processors holds, in seconds since this machine booted, the time when work ran, and when it could have run if the hypervisor
// hadn't run others.
type processors struct{ ran, stolen float64 }

func readProcessors() (processors, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return processors{}, err
	}
	stat, err := proc.Stat()
	c := stat.CPUTotal // guests are part of user and nice
	return processors{ran: c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ, stolen: c.Steal},
		errors.Wrap(err, "read the processors' time")
}

// stolenSince returns the share of requested processor time since then that went to others, in percent.
func (p processors) stolenSince(before processors) float64 {
	ran, stolen := p.ran-before.ran, p.stolen-before.stolen
	if ran+stolen == 0 {
		return 0
	}
	return 100 * stolen / (ran + stolen)
}
