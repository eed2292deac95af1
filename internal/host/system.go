// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

// ProcSys is where the kernel shows its parameters: net.ipv4.ip_forward is the
// file net/ipv4/ip_forward below it.
const ProcSys = "/proc/sys/"

// Process is a running process as /proc shows it.
type Process struct {
	PID int
	// Name is the file name of its program.
	Name string
}
