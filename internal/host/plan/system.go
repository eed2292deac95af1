// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// SetParameter accepts a missing parameter once the plan loads a module, which may bring it.
func (o *overlay) SetParameter(name, value string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(host.ProcSys + name)
	now, err := o.readFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(o.modules) > 0 {
		err = nil
	}
	if host.IgnoreForbidden(err) != nil {
		return false, host.Explain("read the kernel parameter", path, err)
	}
	if err == nil && strings.TrimSpace(string(now)) == value {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: 0o644, data: []byte(value + "\n")}
	return true, nil
}

func (o *overlay) LoadModule(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.modules = append(o.modules, name)
	return nil
}

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

func (o *overlay) SwapOff(area string) error {
	o.setSwap(area, false)
	return nil
}

func (o *overlay) SwapOn(area string) error {
	o.setSwap(area, true)
	return nil
}

func (o *overlay) setSwap(area string, on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.swap[area] = on
}

// RestoreContexts does nothing: a plan has no contexts.
func (o *overlay) RestoreContexts(context.Context, []string) error { return nil }

// LookPath finds a program written by the plan, unless the host has one earlier in PATH.
func (o *overlay) LookPath(name string) (string, error) {
	there, err := o.base.LookPath(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if n := o.nodes[path]; n != nil && !n.removed && n.mode&0o111 != 0 {
			return path, nil
		}
		if err == nil && path == there {
			break
		}
	}
	return there, err
}

// ProgramVersion can't run a program that only the plan has written.
func (o *overlay) ProgramVersion(ctx context.Context, path string) (string, error) {
	o.mu.Lock()
	n := o.nodes[filepath.Clean(path)]
	o.mu.Unlock()
	if n != nil {
		return "", host.ErrNotInPlan
	}
	return o.base.ProgramVersion(ctx, path)
}

// Probe succeeds: a plan assumes that a run's waits do.
func (o *overlay) Probe(context.Context, host.Probe) error { return nil }

func (o *overlay) Fetch(context.Context, host.Probe) ([]byte, error) { return nil, host.ErrNotInPlan }

func (o *overlay) Date(context.Context, host.Probe) (time.Time, error) {
	return time.Time{}, host.ErrNotInPlan
}

func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, host.ErrNotInPlan
}

func (o *overlay) ProbeWrite(string) error { return host.ErrNotInPlan }

func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, host.ErrNotInPlan
}
