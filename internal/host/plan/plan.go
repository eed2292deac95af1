// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan wraps a host. NewOverlay makes the host of a dry run out of a host.Reader; NewRecorder records the changes
// of a run. Neither of them embeds a host.Remote or a host.Writer, so a method that is added to one of these does not
// compile until both implement it.
package plan

import (
	"sync"

	"github.com/slipway-k8s/slipway/internal/host"
)

// NewOverlay returns the host of a dry run. Reads are answered from the writes of
// this run, then from base. Writes and unit actions change only the memory, and a
// recorder around it hands each change to record, in order. The overlay refuses
// the same orders as the real host, such as writing to a symlink or into a missing
// directory.
//
// The overlay gets a Reader only, so it cannot change the host or send a
// packet. It answers for the rest itself: probes succeed, units are in the
// state that the actions on them would bring about, and other questions that
// would leave the host return ErrNotInPlan.
//
// Of files that this user may not read the overlay knows nothing: writing one
// is recorded as a change, since it may be one, and reading one is an error
// that says to run as root. So a plan never shows, for example, a new CA in
// place of one that exists.
func NewOverlay(base host.Reader, record func(host.Action)) host.Host {
	return NewRecorder(&overlay{
		base: base, RuntimeReader: base, SystemReader: base, NetworkReader: base,
		nodes: map[string]*node{}, owners: map[string]host.Owner{}, units: map[string]unitPlan{}, unmounted: map[string]bool{}, removed: map[string]bool{},
		swap: map[string]bool{}, images: map[string]plannedImage{},
	}, record)
}

// overlay answers for files and units itself, because a run changes them. The
// facts that it embeds are the same before and after.
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
	modules   []string                // that are loaded
	swap      map[string]bool         // areas that are turned on or off
	images    map[string]plannedImage // by name
}

// EffectiveUID implements SystemReader: a plan shows a run by root, and says which
// files only root could have read.
func (o *overlay) EffectiveUID() int { return 0 }
