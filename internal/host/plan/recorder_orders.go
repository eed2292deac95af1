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

// ReloadUnits implements UnitWriter.
func (r *recorder) ReloadUnits(ctx context.Context) error {
	return r.done(r.writer.ReloadUnits(ctx), host.Action{Verb: host.Reload})
}

// EnableUnit implements UnitWriter.
func (r *recorder) EnableUnit(ctx context.Context, name string) error {
	before, asked := r.Unit(ctx, name)
	err := r.writer.EnableUnit(ctx, name)
	if asked == nil && before.UnitFileState == "enabled" {
		return err
	}
	return r.done(err, host.Action{Verb: host.Enable, Unit: host.UnitName(name)})
}

// DisableUnit implements UnitWriter.
func (r *recorder) DisableUnit(ctx context.Context, name string) error {
	return r.changeFiles(ctx, host.Disable, name, r.writer.DisableUnit)
}

// MaskUnit implements UnitWriter.
func (r *recorder) MaskUnit(ctx context.Context, name string) error {
	return r.changeFiles(ctx, host.Mask, name, r.writer.MaskUnit)
}

// UnmaskUnit implements UnitWriter.
func (r *recorder) UnmaskUnit(ctx context.Context, name string) error {
	return r.changeFiles(ctx, host.Unmask, name, r.writer.UnmaskUnit)
}

// changeFiles records a change of the state of a unit's files, if there was one.
func (r *recorder) changeFiles(ctx context.Context, verb host.Verb, name string, do func(context.Context, string) error) error {
	before, asked := r.Unit(ctx, name)
	if err := do(ctx, name); err != nil {
		return err
	}
	after, askedAgain := r.Unit(ctx, name)
	if asked == nil && askedAgain == nil && before.UnitFileState == after.UnitFileState {
		return nil
	}
	return r.done(nil, host.Action{Verb: verb, Unit: host.UnitName(name)})
}

// StartUnit implements UnitWriter.
func (r *recorder) StartUnit(ctx context.Context, name string) error {
	return r.done(r.writer.StartUnit(ctx, name), host.Action{Verb: host.Start, Unit: host.UnitName(name)})
}

// StopUnit implements UnitWriter.
func (r *recorder) StopUnit(ctx context.Context, name string) error {
	return r.done(r.writer.StopUnit(ctx, name), host.Action{Verb: host.Stop, Unit: host.UnitName(name)})
}

// RestartUnit implements UnitWriter.
func (r *recorder) RestartUnit(ctx context.Context, name string) error {
	return r.done(r.writer.RestartUnit(ctx, name), host.Action{Verb: host.Restart, Unit: host.UnitName(name)})
}

// SuspendUnit implements UnitWriter. It isn't recorded: only StopUnit lasts.
func (r *recorder) SuspendUnit(ctx context.Context, name string) error {
	return r.writer.SuspendUnit(ctx, name)
}

// KillUnit implements UnitWriter, as SuspendUnit.
func (r *recorder) KillUnit(ctx context.Context, name string) error {
	return r.writer.KillUnit(ctx, name)
}

// PullImage implements RuntimeWriter.
func (r *recorder) PullImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.PullImage(ctx, socket, image), host.Action{Verb: host.Pull, Image: image})
}

// ImportImages implements RuntimeWriter.
func (r *recorder) ImportImages(ctx context.Context, socket string, names []string, archive func(io.Writer) error) error {
	err := r.writer.ImportImages(ctx, socket, names, archive)
	for _, name := range names {
		_ = r.done(err, host.Action{Verb: host.Import, Image: name}) // reported below
	}
	return err
}

// PinImage implements RuntimeWriter.
func (r *recorder) PinImage(ctx context.Context, socket, image string, pinned bool) error {
	return r.done(r.writer.PinImage(ctx, socket, image, pinned), host.Action{Verb: pinning(pinned), Image: image})
}

func pinning(pinned bool) host.Verb {
	if pinned {
		return host.Pin
	}
	return host.Unpin
}

// RemoveImage implements RuntimeWriter.
func (r *recorder) RemoveImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.RemoveImage(ctx, socket, image), host.Action{Verb: host.RemoveImage, Image: image})
}

// StopContainer implements RuntimeWriter. The kubelet starts the container of
// a static Pod again, so the node is as before: that is not recorded.
func (r *recorder) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	return r.writer.StopContainer(ctx, socket, id, grace)
}

// RemoveExited implements RuntimeWriter. The containers have ended, so that isn't
// recorded either.
func (r *recorder) RemoveExited(ctx context.Context, socket, namespace, name string) error {
	return r.writer.RemoveExited(ctx, socket, namespace, name)
}

// RemovePods implements RuntimeWriter.
func (r *recorder) RemovePods(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
	removed, err := r.writer.RemovePods(ctx, socket, pods)
	for _, p := range removed {
		r.record(host.Action{Verb: host.RemovePod, Name: p.String()})
	}
	return removed, err
}

// SetParameter implements KernelWriter.
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

// LoadModule implements KernelWriter.
func (r *recorder) LoadModule(ctx context.Context, name string) error {
	return r.done(r.writer.LoadModule(ctx, name), host.Action{Verb: host.LoadModule, Name: name})
}

// SwapOff implements KernelWriter.
func (r *recorder) SwapOff(area string) error {
	return r.done(r.writer.SwapOff(area), host.Action{Verb: host.SwapOff, Name: area})
}

// SwapOn implements KernelWriter.
func (r *recorder) SwapOn(area string) error {
	return r.done(r.writer.SwapOn(area), host.Action{Verb: host.SwapOn, Name: area})
}

// RestoreContexts implements KernelWriter.
func (r *recorder) RestoreContexts(ctx context.Context, paths []string) error {
	err := r.writer.RestoreContexts(ctx, paths)
	for _, path := range paths {
		_ = r.done(err, host.Action{Verb: host.Relabel, Path: path}) // reported below
	}
	return err
}

// RemoveLeftover implements NetworkWriter.
func (r *recorder) RemoveLeftover(ctx context.Context, l host.Leftover) error {
	return r.done(r.writer.RemoveLeftover(ctx, l), host.Action{Verb: host.Remove, Name: l.String()})
}

// Probe implements Remote.
func (r *recorder) Probe(ctx context.Context, p host.Probe) error { return r.remote.Probe(ctx, p) }

// Fetch implements Remote.
func (r *recorder) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return r.remote.Fetch(ctx, p)
}

// Date implements Remote.
func (r *recorder) Date(ctx context.Context, p host.Probe) (time.Time, error) {
	return r.remote.Date(ctx, p)
}

// LookupHost implements Remote.
func (r *recorder) LookupHost(ctx context.Context, name string) ([]netip.Addr, error) {
	return r.remote.LookupHost(ctx, name)
}

// ProbeWrite implements DiskTester: nothing of it is left.
func (r *recorder) ProbeWrite(dir string) error { return r.writer.ProbeWrite(dir) }

// SyncTimes implements DiskTester: nothing of it is left.
func (r *recorder) SyncTimes(ctx context.Context, dir string) ([]time.Duration, error) {
	return r.writer.SyncTimes(ctx, dir)
}
