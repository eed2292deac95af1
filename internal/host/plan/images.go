// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"crypto/sha256"
	"io"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (o *overlay) HasFile(f host.SetFile) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(f.Path)
	n := o.nodes[path]
	switch {
	case o.gone(path):
		return false, nil
	case n == nil:
		return o.base.HasFile(f)
	case n.IsDir():
		return false, &host.KindError{Path: path, Want: "regular file", Got: n.mode}
	case n.set != nil:
		f.Path = path
		return *n.set == f, nil
	}
	data, err := o.readFile(path)
	return err == nil && n.mode == f.Mode && sha256.Sum256(data) == f.SHA256, host.Explain("read", path, err)
}

func (o *overlay) WriteSet(files []host.SetFile, _ func(func(string, io.Reader) error) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range files {
		path := filepath.Clean(f.Path)
		if err := o.checkDir(filepath.Dir(path)); err != nil {
			return host.Explain("write", path, err)
		}
		info, err := o.lstat(path)
		if err == nil && !info.Mode().IsRegular() {
			return &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
		}
		f.Path = path
		o.nodes[path] = &node{name: filepath.Base(path), mode: f.Mode, unknown: true, set: &f}
		o.owners[path] = host.Owner{} // a plan shows a run by root
	}
	return nil
}

// plannedImage is an image after the planned actions: present, pinned or not, or removed.
type plannedImage struct{ pinned, removed bool }

// Images implements RuntimeReader: it adds images the plan imports or pulls, and leaves out its removals. A runtime started by
// the plan has no other images.
func (o *overlay) Images(ctx context.Context, socket string) ([]host.Image, error) {
	there, err := o.RuntimeReader.Images(ctx, socket)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && !o.starts() {
		return nil, err
	}
	var images []host.Image
	known := map[string]bool{}
	for _, i := range there {
		names := slices.DeleteFunc(slices.Clone(i.Names), func(name string) bool { return o.images[name].removed })
		for _, name := range names {
			if plan, planned := o.images[name]; planned {
				known[name], i.Pinned = true, plan.pinned
			}
		}
		if len(names) < len(i.Names) && len(names) == 0 {
			continue
		}
		i.Names = names
		images = append(images, i)
	}
	for name, plan := range o.images { // in any order: nothing is printed
		if !plan.removed && !known[name] {
			images = append(images, host.Image{Names: []string{name}, Pinned: plan.pinned})
		}
	}
	return images, nil
}

func (o *overlay) ImagePresent(ctx context.Context, socket, image string) (bool, error) {
	present, err := o.RuntimeReader.ImagePresent(ctx, socket, image)
	o.mu.Lock()
	defer o.mu.Unlock()
	plan, planned := o.images[image]
	switch {
	case planned:
		return !plan.removed, nil
	case err != nil && o.starts():
		return false, nil
	}
	return present, err
}

// starts reports whether the plan starts a runtime. Any unit but the kubelet counts: systemd doesn't say which unit listens
// where.
func (o *overlay) starts() bool {
	for name, plan := range o.units { // in any order
		if plan.acted && plan.running && name != "kubelet.service" {
			return true
		}
	}
	return false
}

func (o *overlay) PullImage(_ context.Context, _, image string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.images[image] = plannedImage{pinned: o.images[image].pinned}
	return nil
}

func (o *overlay) ImportImages(_ context.Context, _ string, names []string, _ func(io.Writer) error) error {
	for _, name := range names {
		o.setImage(name, true)
	}
	return nil
}

func (o *overlay) PinImage(_ context.Context, _, image string, pinned bool) error {
	o.setImage(image, pinned)
	return nil
}

func (o *overlay) setImage(image string, pinned bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.images[image] = plannedImage{pinned: pinned}
}

func (o *overlay) RemoveImage(_ context.Context, _, image string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.images[image] = plannedImage{removed: true}
	return nil
}
