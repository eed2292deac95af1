// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/tls"
)

// Real is the host that this process runs on. It's safe for concurrent use.
type Real struct {
	*Root
	Bus
	Runtimes
	Stack

	root     string
	sessions tls.ClientSessionCache // of probes that accept any certificate
}

var _ Host = (*Real)(nil)

// New returns the host. Close ends its connections.
func New() *Real { return NewAt("") }

// NewAt returns a host whose files are below root: its /etc/x is root/etc/x, and so are the lock and the list of swap
// areas. Units, the runtime and all other facts are this host's. --rootfs uses it, and tests that must not touch the
// real /etc.
func NewAt(root string) *Real {
	return &Real{Root: At(root), root: root, sessions: tls.NewLRUClientSessionCache(0)}
}

// Close ends the connections to systemd and to container runtimes.
func (h *Real) Close() {
	h.Bus.Close()
	h.Runtimes.Close()
}
