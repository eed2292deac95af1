// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// SetParameter implements KernelWriter. A module that the plan loads may bring a
// parameter that is not there yet.
func (o *overlay) SetParameter(name, value string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(host.ProcSys + name)
	now, err := o.readFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(o.modules) > 0 {
		err = nil
	}
	if unlessForbidden(err) != nil {
		return false, host.Explain("read the kernel parameter", path, err)
	}
	if err == nil && strings.TrimSpace(string(now)) == value {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: 0o644, data: []byte(value + "\n")}
	o.record(host.Action{Verb: host.Set, Name: parameter(name, value)})
	return true, nil
}

// parameter names a kernel parameter as sysctl(8) does, with its value.
func parameter(name, value string) string {
	return strings.ReplaceAll(name, "/", ".") + "=" + value
}

// LoadModule implements KernelWriter.
func (o *overlay) LoadModule(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.modules = append(o.modules, name)
	o.record(host.Action{Verb: host.LoadModule, Name: name})
	return nil
}

// Swap implements SystemReader.
func (o *overlay) Swap() ([]string, error) {
	areas, err := o.SystemReader.Swap()
	o.mu.Lock()
	defer o.mu.Unlock()
	var left []string
	for _, a := range areas {
		if on, planned := o.swap[a]; on || !planned {
			left = append(left, a)
		}
	}
	return left, err
}

// SwapOff implements KernelWriter.
func (o *overlay) SwapOff(area string) error {
	o.setSwap(host.SwapOff, area, false)
	return nil
}

// SwapOn implements KernelWriter.
func (o *overlay) SwapOn(area string) error {
	o.setSwap(host.SwapOn, area, true)
	return nil
}

func (o *overlay) setSwap(verb host.Verb, area string, on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.swap[area] = on
	o.record(host.Action{Verb: verb, Name: area})
}

// RestoreContexts implements KernelWriter.
func (o *overlay) RestoreContexts(_ context.Context, paths []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range paths {
		o.record(host.Action{Verb: host.Relabel, Path: path})
	}
	return nil
}
