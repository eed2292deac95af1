// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package host is what Slipway may read from, ask from and do to the host it
// runs on: files, systemd units, the container runtime, and the facts that
// checks need.
//
// The methods are grouped by what a call may do, so that a dry run can be given
// less than a run:
//
//   - A Reader looks at this host. It changes nothing and sends nothing. Asking
//     a local daemon counts as reading, because nothing leaves the host: systemd
//     over D-Bus, the container runtime over its Unix socket, the kernel over
//     netlink. So does running a local program to get its version.
//   - A Remote sends packets. A health endpoint on a loopback address belongs
//     here too: the URL decides where the question goes, not the type.
//   - A Writer changes this host, or makes a daemon change it. Pulling an image
//     is a write, although the runtime uses the network for it. So is testing a
//     disk by writing to it.
//
// Real works on the host. NewOverlay makes the host of a dry run out of a
// Reader. NewRecorder wraps a Host and records what changed. Neither of them
// embeds a Remote or a Writer, so a method that is added to one of these does
// not compile until both say what they do about it.
package host

// Host is everything that a phase may read, ask and do on its node.
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
