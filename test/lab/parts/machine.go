// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// Machine holds the directories a machine is made from, which never change.
type Machine struct {
	Layers     []string // of the root file system, the topmost first
	Containerd string   // a containerd root with its images; a bare machine has none
}

// Machine makes the parts of a machine.
func (b *Builder) Machine(ctx context.Context, n Need) (*Machine, error) {
	c, err := b.contents(n)
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	err = b.do(ctx, func(ctx context.Context, r *run) error {
		if n.Bare {
			return r.bare(ctx, c, m)
		}
		return r.node(ctx, c, m)
	})
	return m, err
}

func (r *run) bare(ctx context.Context, c contents, m *Machine) error {
	debian, err := r.debian(ctx, c.debian)
	if err != nil {
		return err
	}
	files, err := r.layer(ctx, "machine", "laying out the files of bare machines", nil, content{"machine", machineLinks})
	m.Layers = append([]string{files}, debian...)
	return err
}

// node makes all parts of a node. While Go builds, it installs Debian, which mostly waits for the network and the disk, and
// unpacks the images.
func (r *run) node(ctx context.Context, c contents, m *Machine) error {
	var debian tree
	installed := make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if debian, err = r.debian(ctx, c.debian); err == nil {
			close(installed)
		}
		return err
	})
	group.Go(func() error { return r.fetch(ctx, append(c.first, c.then...)) })
	group.Go(func() error {
		if err := r.build(ctx, c.first); err != nil {
			return err
		}
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-installed:
			}
			images, err := r.images(ctx, c.images, debian)
			m.Containerd = filepath.Join(images, "root")
			return err
		})
		return r.build(ctx, c.then)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	own, common, err := r.nodeLayers(ctx, c.layers)
	m.Layers = append([]string{own, common}, debian...)
	return err
}
