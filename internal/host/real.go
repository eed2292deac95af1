// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/tls"
	"path/filepath"
	"sync"
)

// Real works on the host itself. It is safe for concurrent use.
type Real struct {
	root     string
	writing  [32]sync.Mutex // by path: see guard
	bus      bus
	runtimes runtimes
	sessions tls.ClientSessionCache // of probes that accept any certificate
}

var _ Host = (*Real)(nil)

// New returns the host that this process runs on. Close releases what it
// opened.
func New() *Real { return NewAt("") }

// NewAt returns a host whose files are below root: the path /etc/x is
// root/etc/x, and so are the lock and the list of swap areas. Units, the runtime
// and the other facts are this host's. It is for --rootfs, and for tests without
// root and without the real /etc.
func NewAt(root string) *Real {
	return &Real{root: root, sessions: tls.NewLRUClientSessionCache(0)}
}

// Close ends the connections to systemd and to container runtimes.
func (r *Real) Close() {
	r.bus.close()
	r.runtimes.close()
}

// path returns where this process finds a path of the host.
func (r *Real) path(p string) string {
	if r.root == "" {
		return p
	}
	return filepath.Join(r.root, p)
}
