// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package host defines everything Slipway may read from its host, ask it and do to it: files, systemd units, the container
// runtime, the network, the kernel, and facts for the checks. It has the interfaces, their values and their errors; host/linux
// implements them on the real machine, host/plan for a dry run.
//
// Methods are grouped by the effect of a call, so that a dry run can get less than a run:
//
//   - A Reader looks at this host. It changes nothing and sends nothing. Asking a local daemon counts as reading,
//     because nothing leaves the host: systemd over D-Bus, the container runtime over its Unix socket, the kernel over
//     netlink. So does running a local program to get its version.
//   - A Remote sends packets. A health endpoint on a loopback address belongs here too: the URL decides where the
//     question goes, not the type.
//   - A Writer changes this host, or makes a daemon change it. Pulling an image is a write, although the runtime uses
//     the network for it. So is testing a disk by writing to it.
package host

// Host is everything a phase may read, ask and do on its node.
type Host interface {
	Reader
	Remote
	Writer
}

// Reader looks at this host: it changes nothing and sends no packet.
type Reader interface {
	FileReader
	PathReader
	UnitReader
	RuntimeReader
	SystemReader
	NetworkReader
}

// Writer changes this host.
type Writer interface {
	FileWriter
	OwnerWriter
	UnitWriter
	RuntimeWriter
	KernelWriter
	NetworkWriter
	DiskTester
}
