// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

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

// starts reports whether the plan starts a runtime: any unit but the kubelet, as systemd doesn't say which unit listens where.
func (o *overlay) starts() bool {
	for name, plan := range o.units { // in any order
		if plan.activeState == "active" && name != host.KubeletUnit {
			return true
		}
	}
	return false
}

// RepairInterruptedFetches does nothing: only a run leaves notes.
func (o *overlay) RepairInterruptedFetches(context.Context, string) error { return nil }

func (o *overlay) PullImage(_ context.Context, _, image string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.images[image] = plannedImage{pinned: o.images[image].pinned}
	return nil
}

func (o *overlay) ImportImages(_ context.Context, _ string, names []string, _ func(io.Writer) error) error {
	o.setImages(plannedImage{pinned: true}, names...)
	return nil
}

func (o *overlay) PinImage(_ context.Context, _, image string, pinned bool) error {
	o.setImages(plannedImage{pinned: pinned}, image)
	return nil
}

func (o *overlay) RemoveImage(_ context.Context, _, image string) error {
	o.setImages(plannedImage{removed: true}, image)
	return nil
}

func (o *overlay) setImages(then plannedImage, names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		o.images[name] = then
	}
}

// StopContainer changes nothing by itself: the kubelet starts the container again, from the same static Pod or another.
func (o *overlay) StopContainer(context.Context, string, string, time.Duration) error { return nil }

// RemoveExited changes nothing: the containers have ended already.
func (o *overlay) RemoveExited(context.Context, string, string, string) error { return nil }

// AwaitContainer assumes that the kubelet has started its static Pods.
func (o *overlay) AwaitContainer(context.Context, string, string, string, func(host.Container) bool) error {
	return nil
}

// AwaitRuntime assumes that the runtime starts.
func (o *overlay) AwaitRuntime(context.Context, string) error { return nil }

// RuntimeInfo assumes that a runtime started by the plan is ready, and knows nothing else of it.
func (o *overlay) RuntimeInfo(ctx context.Context, socket string) (host.RuntimeInfo, error) {
	info, err := o.RuntimeReader.RuntimeInfo(ctx, socket)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.starts() {
		return host.RuntimeInfo{APIVersion: "v1", Ready: true}, nil
	}
	return info, err
}

func (o *overlay) RemovePods(_ context.Context, _ string, pods []host.Pod) ([]host.Pod, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range pods {
		o.removed[p.ID] = true
		o.forgetNetwork(p)
	}
	return pods, nil
}

func (o *overlay) Pods(ctx context.Context, socket string) ([]host.Pod, error) {
	pods, err := o.RuntimeReader.Pods(ctx, socket)
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(pods, func(p host.Pod) bool { return o.removed[p.ID] }), err
}

// AwaitSettled returns at once: nothing has ended in a plan.
func (o *overlay) AwaitSettled(context.Context, string, time.Time) error { return nil }

// forgetNetwork plans the removal of a Pod's files that the runtime and the network plugin delete with it: files named
// NETWORK-CONTAINER-INTERFACE, and address files, whose content begins with the container's ID:
// https://www.cni.dev/plugins/current/ipam/host-local/#files
func (o *overlay) forgetNetwork(p host.Pod) {
	for _, dir := range []string{"/var/lib/cni/results", "/var/lib/cni/cache/results"} {
		entries, _ := o.readDir(dir) // files this user may not see aren't planned
		for _, e := range entries {
			if strings.Contains(e.Name(), "-"+p.ID+"-") {
				o.drop(filepath.Join(dir, e.Name()))
			}
		}
	}
	const addresses = "/var/lib/cni/networks"
	networks, _ := o.readDir(addresses)
	for _, network := range networks {
		entries, _ := o.readDir(filepath.Join(addresses, network.Name()))
		for _, e := range entries {
			path := filepath.Join(addresses, network.Name(), e.Name())
			if data, _ := o.readFile(path); bytes.HasPrefix(data, []byte(p.ID)) {
				o.drop(path)
			}
		}
	}
}
