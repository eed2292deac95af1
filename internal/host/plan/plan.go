// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan wraps a host: NewOverlay turns a host.Reader into a dry run's host, and NewRecorder records a run's changes.
// Neither embeds a host.Remote or a host.Writer, so a method added to one of these doesn't compile until both implement it.
package plan

import (
	"sync"

	"github.com/slipway-k8s/slipway/internal/host"
)

// NewOverlay returns a dry run's host. It answers reads from this run's writes, then from base. Writes and unit actions change
// only memory, and a recorder around the overlay passes each change to record, in order. The overlay refuses the same orders as
// the real host, such as writing to a symlink or into a missing directory.
//
// With only a Reader, the overlay can't change the host or send a packet. It answers for the rest itself: probes succeed, units
// are in the state their planned actions lead to, and other questions that would leave the host return ErrNotInPlan.
//
// The overlay knows nothing of files this user may not read: writing one is recorded as a change, since it may be one, and
// reading one is an error that says to run as root. So a plan never shows, for example, a new CA in place of an existing CA.
func NewOverlay(base host.Reader, record func(host.Action)) host.Host {
	return NewRecorder(&overlay{
		base: base, RuntimeReader: base, SystemReader: base, NetworkReader: base,
		nodes: map[string]*node{}, owners: map[string]host.Owner{}, units: map[string]unitPlan{}, unmounted: map[string]bool{}, removed: map[string]bool{},
		swap: map[string]bool{}, images: map[string]plannedImage{},
	}, record)
}

// overlay answers for files and units itself, because a run changes them. The embedded facts are the same before and after.
type overlay struct {
	host.RuntimeReader
	host.SystemReader
	host.NetworkReader

	base host.Reader

	mu     sync.Mutex
	nodes  map[string]*node      // by cleaned path
	owners map[string]host.Owner // by cleaned path
	units  map[string]unitPlan

	unmounted map[string]bool
	removed   map[string]bool         // Pods, by ID
	modules   []string                // to load
	swap      map[string]bool         // areas turned on or off
	images    map[string]plannedImage // by name
}

// EffectiveUID is root's: a plan shows a run by root, and says which files only root could have read.
func (o *overlay) EffectiveUID() int { return 0 }
