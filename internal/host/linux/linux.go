// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package linux is the host this process runs on: Host implements host.Host. It puts together the packages below it (files,
// systemd, cri, network, program), and has the kernel, the machine's facts and the probes itself.
package linux

import (
	"net/http"
	"sync"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/cri"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
	"github.com/slipway-k8s/slipway/internal/host/linux/network"
	"github.com/slipway-k8s/slipway/internal/host/linux/systemd"
)

// Host is the host this process runs on. It's safe for concurrent use.
type Host struct {
	*files.Root
	systemd.Bus
	cri.Runtimes
	network.Stack

	root      string
	health    *http.Transport // of probes that accept any certificate
	labelling sync.Mutex      // of new directories
}

var _ host.Host = (*Host)(nil)

// New returns the host. Close ends its connections.
func New() *Host { return NewAt("") }

// NewAt returns a host whose files are below root: its /etc/x is root/etc/x, and so are the lock and the list of swap areas.
// Units, the runtime and all other facts are this host's. --rootfs uses it, and so do tests that must not touch the real /etc.
func NewAt(root string) *Host {
	below := files.At(root)
	return &Host{Root: below, Bus: systemd.Bus{Sync: files.Sync}, Runtimes: cri.Runtimes{Notes: below}, root: root, health: healthTransport()}
}

// Close ends the connections to systemd, to container runtimes and to probed servers.
func (h *Host) Close() {
	h.health.CloseIdleConnections()
	h.Bus.Close()
	h.Runtimes.Close()
}
