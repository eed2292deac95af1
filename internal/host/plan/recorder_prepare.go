// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
)

// WriteSet implements FileWriter.
func (r *recorder) WriteSet(files []host.SetFile, fill func(put func(string, io.Reader) error) error) error {
	created := map[string]bool{}
	for _, f := range files {
		created[f.Path] = r.isMissing(f.Path)
	}
	if err := r.writer.WriteSet(files, fill); err != nil {
		return err
	}
	for _, f := range files {
		r.record(setAction(f, created[f.Path]))
	}
	return nil
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

// SetParameter implements KernelWriter.
func (r *recorder) SetParameter(name, value string) (bool, error) {
	changed, err := r.writer.SetParameter(name, value)
	if changed && err == nil {
		r.record(host.Action{Verb: host.Set, Name: parameter(name, value)})
	}
	return changed, err
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

// RemoveImage implements RuntimeWriter.
func (r *recorder) RemoveImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.RemoveImage(ctx, socket, image), host.Action{Verb: host.RemoveImage, Image: image})
}

func setAction(f host.SetFile, created bool) host.Action {
	return host.Action{Verb: host.Write, Path: filepath.Clean(f.Path), Mode: f.Mode, Data: []byte(host.Summary(f)), Opaque: true, Created: created}
}

func pinning(pinned bool) host.Verb {
	if pinned {
		return host.Pin
	}
	return host.Unpin
}

// parameter names a kernel parameter as sysctl(8) does, with its value.
func parameter(name, value string) string {
	return strings.ReplaceAll(name, "/", ".") + "=" + value
}
