// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pkg/errors"
)

// Need specifies a machine. Nothing beyond it is built.
type Need struct {
	Bare       bool     // like a cloud's image: an init system, a way in, and nothing of what follows
	Kubernetes string   // the minor version of its programs; default the newest
	With       []string // parts for some nodes only: Kubeadm, Flannel
}

const (
	// Kubeadm is the program. It isn't in a layer of the node: see Builder.Program.
	Kubeadm = "kubeadm"
	// Flannel stands for the images of this Pod network.
	Flannel = "flannel"
)

// extras are the values for Need.With.
var extras = []string{Kubeadm, Flannel}

// pick is a program of a release. Programs shared by all releases are picked from the newest.
type pick struct{ release, program string }

// contents are the parts of a machine.
type contents struct {
	debian packageSet
	// images are unpacked in this order, so that a node with more of them shares the first ones.
	images []imageGroup
	// first are the programs needed to make and unpack the images; then are the node's own, built meanwhile.
	// Both are in build order.
	first, then []pick
	// layers are the programs in the node's root; extra ones are installed there later.
	layers, extra []pick
}

// contents chooses the parts of a machine.
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
	// An older node is there to be upgraded, release by release, so it has the images for that.
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

// releaseAt returns the index of a minor version, empty for the newest.
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

// picks returns programs for a node of a release.
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

// inOrder returns picks without duplicates, in build order: newer releases first.
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
