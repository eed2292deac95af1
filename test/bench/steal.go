// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pkg/errors"
	"github.com/prometheus/procfs"
)

// processors are the seconds since this machine booted in which work ran, and
// in which it could have run, had the hypervisor not let others run.
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

// stolenSince is how much of the processor time that was asked for since then
// others got, in percent.
func (p processors) stolenSince(before processors) float64 {
	ran, stolen := p.ran-before.ran, p.stolen-before.stolen
	if ran+stolen == 0 {
		return 0
	}
	return 100 * stolen / (ran + stolen)
}
