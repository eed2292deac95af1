// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pkg/errors"
)

// Need says what a machine consists of. Nothing beyond it is built.
type Need struct {
	Bare       bool     // as images of clouds are: an init system, a way in, and nothing of what follows
	Kubernetes string   // the minor version of its programs; default the newest
	With       []string // what only some nodes have: Kubeadm, Flannel
}

const (
	// Kubeadm is the program. It isn't in a layer of the node: see Builder.Program.
	Kubeadm = "kubeadm"
	// Flannel are the images of this Pod network.
	Flannel = "flannel"
)

// extras are what a Need may be With.
var extras = []string{Kubeadm, Flannel}

// pick is a program as a release has it. One that is the same in all releases is picked from the newest.
type pick struct{ release, program string }

// contents are all that a machine is made of.
type contents struct {
	debian packageSet
	// images are unpacked in this order, so that a node with more of them shares those that come first.
	images []imageGroup
	// first are the programs that the images and their unpacking need, then those that only the node itself needs: so
	// the images are made while these are built. Both are in the order of building.
	first, then []pick
	// layers are the programs that lie in the node's root, of which extra ones are installed there later.
	layers, extra []pick
}

// contents says what a machine is made of.
func (b *Builder) contents(n Need) (contents, error) {
	if n.Bare {
		return contents{debian: barePackages}, nil
	}
	at, err := b.releaseAt(n.Kubernetes)
	if err != nil {
		return contents{}, err
	}
	for _, extra := range n.With {
		if !slices.Contains(extras, extra) {
			return contents{}, errors.Errorf("a node may be with %q, and not with %q", extras, extra)
		}
	}
	c := contents{debian: nodePackages}
	own, newest := b.releases[at], b.releases[0]
	// An older node is there to be upgraded, release by release: it has the images for that.
	for _, r := range b.releases[:at+1] {
		c.images = append(c.images, imageGroup{"of Kubernetes " + r.name, r.images()})
	}
	c.images[0].recipes = append(newest.commonImages(), c.images[0].recipes...)
	if slices.Contains(n.With, Flannel) {
		c.images = append(c.images, imageGroup{"of flannel", newest.flannelImages()})
	}
	var needed []pick
	for _, g := range c.images {
		for _, i := range g.recipes {
			needed = append(needed, i.picks...)
		}
	}
	c.first = inOrder(append(needed, own.picks("containerd", "containerd-shim-runc-v2", "ctr")...))
	for _, name := range slices.Sorted(maps.Keys(onNode)) {
		if name != Kubeadm {
			c.layers = append(c.layers, own.picks(name)...)
		}
	}
	if slices.Contains(n.With, Kubeadm) {
		c.extra = own.picks(Kubeadm)
	}
	c.then = inOrder(slices.Concat(c.layers, c.extra))
	c.then = slices.DeleteFunc(c.then, func(p pick) bool { return slices.Contains(c.first, p) })
	return c, nil
}

// releaseAt is the index of a minor version, "" being the newest.
func (b *Builder) releaseAt(minor string) (int, error) {
	if minor == "" {
		return 0, nil
	}
	at := slices.IndexFunc(b.releases, func(r *versioned) bool { return r.name == minor })
	if at < 0 {
		return 0, errors.Errorf("the lab has no Kubernetes %q", minor)
	}
	return at, nil
}

// picks are programs as a node of a release has them.
func (r *versioned) picks(names ...string) []pick {
	var list []pick
	for _, name := range names {
		release := releases[0].name
		if p, err := programNamed(name); err == nil && p.ofRelease() {
			release = r.name
		}
		list = append(list, pick{release, name})
	}
	return list
}

// inOrder are picks without duplicates, in the order of building: a release's after those of newer ones.
func inOrder(picks []pick) []pick {
	at := func(p pick) (of, place int) {
		return slices.IndexFunc(releases, func(r release) bool { return r.name == p.release }),
			slices.IndexFunc(programs, func(q program) bool { return q.name == p.program })
	}
	picks = slices.SortedFunc(slices.Values(picks), func(a, b pick) int {
		releaseA, placeA := at(a)
		releaseB, placeB := at(b)
		return cmp.Or(cmp.Compare(releaseA, releaseB), cmp.Compare(placeA, placeB))
	})
	return slices.Compact(picks)
}
