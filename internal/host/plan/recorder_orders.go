// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *recorder) ReloadUnits(ctx context.Context) error {
	return r.done(r.writer.ReloadUnits(ctx), host.Action{Verb: host.Reload})
}

func (r *recorder) OrderUnit(ctx context.Context, order host.UnitOrder, name string) error {
	changes := order.Verb != "" && needed(ctx, r, order, name)
	err := r.writer.OrderUnit(ctx, order, name)
	if !changes {
		return err
	}
	return r.done(err, host.Action{Verb: order.Verb, Unit: host.UnitName(name)})
}

// RepairInterruptedFetches isn't recorded: the images it removes count as missing.
func (r *recorder) RepairInterruptedFetches(ctx context.Context, socket string) error {
	return r.writer.RepairInterruptedFetches(ctx, socket)
}

func (r *recorder) PullImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.PullImage(ctx, socket, image), host.Action{Verb: host.Pull, Image: image})
}

func (r *recorder) ImportImages(ctx context.Context, socket string, names []string, archive func(io.Writer) error) error {
	err := r.writer.ImportImages(ctx, socket, names, archive)
	for _, name := range names {
		_ = r.done(err, host.Action{Verb: host.Import, Image: name}) // reported below
	}
	return err
}

func (r *recorder) PinImage(ctx context.Context, socket, image string, pinned bool) error {
	verb := host.Unpin
	if pinned {
		verb = host.Pin
	}
	return r.done(r.writer.PinImage(ctx, socket, image, pinned), host.Action{Verb: verb, Image: image})
}

func (r *recorder) RemoveImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.RemoveImage(ctx, socket, image), host.Action{Verb: host.RemoveImage, Image: image})
}

// StopContainer isn't recorded: the kubelet starts a static Pod's container again, so the node is as before.
func (r *recorder) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	return r.writer.StopContainer(ctx, socket, id, grace)
}

// RemoveExited isn't recorded: the containers have ended already.
func (r *recorder) RemoveExited(ctx context.Context, socket, namespace, name string) error {
	return r.writer.RemoveExited(ctx, socket, namespace, name)
}

func (r *recorder) RemovePods(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
	removed, err := r.writer.RemovePods(ctx, socket, pods)
	for _, p := range removed {
		r.record(host.Action{Verb: host.RemovePod, Name: p.String()})
	}
	return removed, err
}

func (r *recorder) SetParameter(name, value string) (bool, error) {
	changed, err := r.writer.SetParameter(name, value)
	if changed && err == nil {
		r.record(host.Action{Verb: host.Set, Name: parameter(name, value)})
	}
	return changed, err
}

// parameter names a kernel parameter as sysctl(8) does, with its value.
func parameter(name, value string) string {
	return strings.ReplaceAll(name, "/", ".") + "=" + value
}

func (r *recorder) LoadModule(ctx context.Context, name string) error {
	return r.done(r.writer.LoadModule(ctx, name), host.Action{Verb: host.LoadModule, Name: name})
}

func (r *recorder) SwapOff(area string) error {
	return r.done(r.writer.SwapOff(area), host.Action{Verb: host.SwapOff, Name: area})
}

func (r *recorder) SwapOn(area string) error {
	return r.done(r.writer.SwapOn(area), host.Action{Verb: host.SwapOn, Name: area})
}

func (r *recorder) RestoreContexts(ctx context.Context, paths []string) error {
	err := r.writer.RestoreContexts(ctx, paths)
	for _, path := range paths {
		_ = r.done(err, host.Action{Verb: host.Relabel, Path: path}) // reported below
	}
	return err
}

func (r *recorder) RemoveLeftover(ctx context.Context, l host.Leftover) error {
	return r.done(r.writer.RemoveLeftover(ctx, l), host.Action{Verb: host.Remove, Name: l.String()})
}

func (r *recorder) Probe(ctx context.Context, p host.Probe) error { return r.remote.Probe(ctx, p) }

func (r *recorder) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return r.remote.Fetch(ctx, p)
}

func (r *recorder) Date(ctx context.Context, p host.Probe) (time.Time, error) {
	return r.remote.Date(ctx, p)
}

func (r *recorder) LookupHost(ctx context.Context, name string) ([]netip.Addr, error) {
	return r.remote.LookupHost(ctx, name)
}

func (r *recorder) Answers(ctx context.Context, at netip.AddrPort) (bool, error) {
	return r.remote.Answers(ctx, at)
}

func (r *recorder) RunProgram(ctx context.Context, words []string) error {
	return r.remote.RunProgram(ctx, words)
}

// ProbeWrite isn't recorded: it leaves nothing behind.
func (r *recorder) ProbeWrite(dir string) error { return r.writer.ProbeWrite(dir) }

// SyncTimes isn't recorded either.
func (r *recorder) SyncTimes(ctx context.Context, dir string) ([]time.Duration, error) {
	return r.writer.SyncTimes(ctx, dir)
}
