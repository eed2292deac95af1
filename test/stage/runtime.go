// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (h *Host) RuntimeInfo(ctx context.Context, socket string) (host.RuntimeInfo, error) {
	if err := h.fails("RuntimeInfo"); err != nil {
		return host.RuntimeInfo{}, err
	}
	if h.On.RuntimeInfo != nil {
		return h.On.RuntimeInfo(ctx, socket)
	}
	var info *host.RuntimeInfo
	if h.with(func(has *State) { info = has.Runtime }); info == nil {
		return host.RuntimeInfo{}, &host.RuntimeError{Socket: socket, Op: "ask", Reason: "nothing answers", Fix: "start it"}
	}
	return *info, nil
}

func (h *Host) AwaitRuntime(ctx context.Context, socket string) error {
	_, err := h.RuntimeInfo(ctx, socket)
	return err
}

func (h *Host) Images(ctx context.Context, socket string) (images []host.Image, err error) {
	h.with(func(has *State) { images = slices.Clone(has.Images) })
	return images, h.AwaitRuntime(ctx, socket)
}

func (h *Host) ImagePresent(ctx context.Context, socket, image string) (there bool, err error) {
	if err := h.fails("ImagePresent"); err != nil {
		return false, err
	}
	if h.On.ImagePresent != nil {
		return h.On.ImagePresent(ctx, socket, image)
	}
	h.with(func(has *State) { there = has.AllImages || slices.ContainsFunc(has.Images, named(image)) })
	return there, nil
}

func named(image string) func(host.Image) bool {
	return func(i host.Image) bool { return slices.Contains(i.Names, image) }
}

func (h *Host) ImageDir(context.Context, string) (string, error) {
	return h.Has.ImageDir, h.fails("ImageDir")
}

func (h *Host) Containers(ctx context.Context, socket, namespace, name string) (list []host.Container, err error) {
	if err := h.fails("Containers"); err != nil {
		return nil, err
	}
	if h.On.Containers != nil {
		return h.On.Containers(ctx, socket, namespace, name)
	}
	h.with(func(has *State) { list = slices.Clone(has.Running[name]) })
	return list, nil
}

func (h *Host) AwaitContainer(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
	if h.On.AwaitContainer != nil {
		return h.On.AwaitContainer(ctx, socket, namespace, name, accept)
	}
	for {
		list, err := h.Containers(ctx, socket, namespace, name)
		if err != nil || slices.ContainsFunc(list, accept) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Errorf("no container %s: %v", name, list)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (h *Host) ContainerStates(ctx context.Context, socket, namespace string) ([]host.ContainerState, error) {
	if err := h.fails("ContainerStates"); err != nil {
		return nil, err
	}
	if h.On.ContainerStates != nil {
		return h.On.ContainerStates(ctx, socket, namespace)
	}
	return h.Has.Containers, nil
}

func (h *Host) Sandboxes(context.Context, string, string) ([]host.Sandbox, error) {
	if err := h.fails("Sandboxes"); err != nil {
		return nil, err
	}
	return h.Has.Sandboxes, nil
}

func (h *Host) Pods(ctx context.Context, socket string) (pods []host.Pod, err error) {
	if err := h.fails("Pods"); err != nil {
		return nil, err
	}
	if h.On.Pods != nil {
		return h.On.Pods(ctx, socket)
	}
	h.with(func(has *State) { pods = slices.Clone(has.Pods) })
	return pods, nil
}

func (h *Host) AwaitSettled(ctx context.Context, socket string, since time.Time) error {
	if h.On.AwaitSettled != nil {
		return h.On.AwaitSettled(ctx, socket, since)
	}
	return h.fails("AwaitSettled")
}

// RepairInterruptedFetches is no job: runs do it in any case.
func (h *Host) RepairInterruptedFetches(ctx context.Context, _ string) error {
	if err := h.before(ctx, "settle images"); err != nil {
		return err
	}
	h.with(func(has *State) {
		for _, name := range has.Unsettled {
			has.Images = slices.DeleteFunc(has.Images, named(name))
		}
		has.Unsettled = nil
	})
	return nil
}

func (h *Host) PullImage(ctx context.Context, socket, image string) error {
	if err := h.ordered(ctx, "pull "+image); err != nil {
		return err
	}
	if h.On.PullImage != nil {
		return h.On.PullImage(ctx, socket, image)
	}
	h.with(func(has *State) { has.Images = append(has.Images, host.Image{Names: []string{image}}) })
	return nil
}

func (h *Host) ImportImages(ctx context.Context, _ string, names []string, archive func(io.Writer) error) error {
	if err := h.ordered(ctx, "import "+strings.Join(names, " ")); err != nil {
		return err
	}
	h.with(func(has *State) {
		for _, name := range names {
			has.Images = append(has.Images, host.Image{Names: []string{name}, Pinned: true})
		}
	})
	return archive(io.Discard)
}

func (h *Host) PinImage(ctx context.Context, _, image string, pinned bool) error {
	if err := h.ordered(ctx, fmt.Sprintf("pin %s %t", image, pinned)); err != nil {
		return err
	}
	h.with(func(has *State) {
		for i := range has.Images {
			if named(image)(has.Images[i]) {
				has.Images[i].Pinned = pinned
			}
		}
	})
	return nil
}

func (h *Host) RemoveImage(ctx context.Context, _, image string) error {
	if err := h.ordered(ctx, "remove "+image); err != nil {
		return err
	}
	h.with(func(has *State) { has.Images = slices.DeleteFunc(has.Images, named(image)) })
	return nil
}

// StopContainer stops a container that the kubelet starts again at once.
func (h *Host) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	name, _, _ := strings.Cut(id, "/")
	if err := h.ordered(ctx, "stop container "+name); err != nil {
		return err
	}
	if h.On.StopContainer != nil {
		return h.On.StopContainer(ctx, socket, id, grace)
	}
	h.Runs(h.Now().Add(time.Second), name)
	return nil
}

func (h *Host) Runs(since time.Time, names ...string) {
	h.with(func(has *State) {
		for _, name := range names {
			has.Running[name] = []host.Container{{ID: name, Created: since}}
		}
	})
}

func (h *Host) RemoveExited(ctx context.Context, _, _, name string) error {
	return h.ordered(ctx, "remove exited "+name)
}

func (h *Host) RemovePods(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
	if err := h.ordered(ctx, "remove Pods"); err != nil {
		return nil, err
	}
	if h.On.RemovePods != nil {
		return h.On.RemovePods(ctx, socket, pods)
	}
	h.with(func(has *State) {
		has.Pods = slices.DeleteFunc(has.Pods, func(p host.Pod) bool { return slices.Contains(pods, p) })
	})
	return pods, nil
}
