// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Need is space a run takes on a directory's file system.
type Need struct {
	Dir, What string
	Bytes     uint64
}

// ImageNeed is the space for missing images; nothing if the runtime doesn't say where it keeps them, see the check CRI.
func ImageNeed(ctx context.Context, n *config.Node, h View) []Need {
	dir, err := h.ImageDir(ctx, n.CRISocket)
	if err != nil || dir == "" {
		return nil
	}
	needs := runtimeNeed()
	return []Need{{Dir: dir, What: needs.what, Bytes: needs.least}}
}

// kept is how much of a file system stays free: a tenth. With less, the kubelet evicts Pods by default.
const kept = 10

// Room checks the file system of the first need: it must have room for that and all others on it, and keep a tenth of its size
// free.
func Room(h View, first Need, others ...Need) []Finding {
	at := existingDir(h, first.Dir)
	s, err := h.Space(at)
	if err != nil {
		return unasked("the space for %s was not checked: %v", first.What, err).remedy("check it with `df %s`", at)
	}
	sum, parts := first.Bytes, []string{first.part()}
	for _, o := range others {
		on, err := h.Space(existingDir(h, o.Dir))
		if err == nil && on.Device == s.Device {
			sum += o.Bytes
			parts = append(parts, o.part())
		}
	}
	if reserve := s.Total / kept; s.Free < sum+reserve {
		return fail("the file system of %s has %s free; needed are %s, and %s have to stay free (%d %%)",
			at, size(s.Free), strings.Join(parts, " and "), size(reserve), 100/kept).remedy("free some space, or mount a larger disk there")
	}
	return nil
}

func (n Need) part() string { return fmt.Sprintf("%s for %s", size(n.Bytes), n.What) }
