// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// Facts of the machine.

func (h *Host) Hostname() (string, error)      { return h.Has.Hostname, h.fails("Hostname") }
func (h *Host) EffectiveUID() int              { return h.Has.UID }
func (h *Host) NumCPU() int                    { return h.Has.CPUs }
func (h *Host) MemoryBytes() (uint64, error)   { return h.Has.Memory, h.fails("MemoryBytes") }
func (h *Host) SELinux() bool                  { return h.Has.SELinux }
func (h *Host) KernelRelease() (string, error) { return h.Has.Kernel, h.fails("KernelRelease") }
func (h *Host) Environ() []string              { return h.Has.Environ }

func (h *Host) Swap() (areas []string, err error) {
	h.with(func(has *State) { areas = slices.Clone(has.Swap) })
	return areas, h.fails("Swap")
}

func (h *Host) LookPath(name string) (string, error) {
	if h.On.LookPath != nil {
		return h.On.LookPath(name)
	}
	if _, there := h.Has.Programs[name]; !there && h.Has.Programs != nil {
		return "", errors.Errorf("%s: not found", name)
	}
	return "/usr/bin/" + name, nil
}

func (h *Host) ProgramVersion(ctx context.Context, path string) (string, error) {
	if h.On.ProgramVersion != nil {
		return h.On.ProgramVersion(ctx, path)
	}
	if h.Has.Programs == nil {
		return "Kubernetes " + config.DefaultKubernetesVersion, h.fails("ProgramVersion")
	}
	return h.Has.Programs[filepath.Base(path)], h.fails("ProgramVersion")
}

func (h *Host) ProxyFor(url string) (string, error) {
	if h.On.ProxyFor != nil {
		return h.On.ProxyFor(url)
	}
	return "", nil
}

func (h *Host) Now() time.Time {
	if h.On.Now != nil {
		return h.On.Now()
	}
	now := time.Now()
	h.with(func(has *State) {
		if !has.Time.IsZero() {
			now = has.Time
		}
	})
	return now
}

// CPUTime is none: with a test's own, its machine's load would decide on waits.
func (h *Host) CPUTime() time.Duration {
	if h.On.CPUTime != nil {
		return h.On.CPUTime()
	}
	return 0
}

// SetParameter uses Real: parameters are files.
func (h *Host) SetParameter(name, value string) (bool, error) {
	if err := h.before(context.Background(), "set "+name); err != nil {
		return false, err
	}
	return h.Real.SetParameter(name, value)
}

func (h *Host) LoadModule(ctx context.Context, name string) error {
	if err := h.ordered(ctx, "load "+name); err != nil {
		return err
	}
	if h.On.LoadModule != nil {
		return h.On.LoadModule(ctx, name)
	}
	return nil
}

func (h *Host) SwapOff(area string) error {
	if err := h.ordered(context.Background(), "swapoff "+area); err != nil {
		return err
	}
	h.with(func(has *State) { has.Swap = slices.DeleteFunc(has.Swap, func(a string) bool { return a == area }) })
	return nil
}

func (h *Host) SwapOn(area string) error {
	if err := h.ordered(context.Background(), "swapon "+area); err != nil {
		return err
	}
	h.with(func(has *State) { has.Swap = append(has.Swap, area) })
	return nil
}

func (h *Host) RestoreContexts(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := h.ordered(ctx, "relabel "+path); err != nil {
			return err
		}
	}
	return nil
}

// Facts of the network.

func (h *Host) Interfaces() ([]host.Interface, error) {
	return h.Has.Interfaces, h.fails("Interfaces")
}
func (h *Host) Addresses() ([]netip.Addr, error) { return h.Has.Addresses, h.fails("Addresses") }
func (h *Host) Routes() ([]host.Route, error)    { return h.Has.Routes, h.fails("Routes") }

func (h *Host) DefaultAddress(ipv6 bool) (netip.Addr, error) {
	for _, a := range h.Has.Default {
		if a.Is6() == ipv6 {
			return a, nil
		}
	}
	return netip.Addr{}, h.fails("DefaultAddress")
}

func (h *Host) PortFree(address string, port int) error {
	h.with(func(*State) { h.Listened = append(h.Listened, net.JoinHostPort(address, strconv.Itoa(port))) })
	if h.On.PortFree != nil {
		return h.On.PortFree(address, port)
	}
	if _, held := h.Has.Held[port]; held {
		return errors.Wrapf(syscall.EADDRINUSE, "port %d is in use", port)
	}
	return nil
}

func (h *Host) PortHolder(port int) (host.Process, bool) {
	if h.On.PortHolder != nil {
		return h.On.PortHolder(port)
	}
	p := h.Has.Held[port]
	return p, p != host.Process{}
}

func (h *Host) NetworkLeftovers(ctx context.Context, bridge string) (left []host.Leftover, err error) {
	if h.On.NetworkLeftovers != nil {
		return h.On.NetworkLeftovers(ctx, bridge)
	}
	h.with(func(has *State) { left = slices.Clone(has.Leftovers) })
	return left, h.fails("NetworkLeftovers")
}

func (h *Host) RemoveLeftover(ctx context.Context, l host.Leftover) error {
	if err := h.ordered(ctx, "remove "+l.String()); err != nil {
		return err
	}
	if h.On.RemoveLeftover != nil {
		return h.On.RemoveLeftover(ctx, l)
	}
	h.with(func(has *State) {
		has.Leftovers = slices.DeleteFunc(has.Leftovers, func(o host.Leftover) bool { return o == l })
	})
	return nil
}

func (h *Host) Probe(ctx context.Context, p host.Probe) error {
	if h.On.Probe != nil {
		return h.On.Probe(ctx, p)
	}
	_, err := h.Fetch(ctx, p)
	return err
}

func (h *Host) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	if h.On.Fetch != nil {
		return h.On.Fetch(ctx, p)
	}
	if err := h.fails("Fetch", "Fetch "+p.URL); err != nil {
		return nil, err
	}
	answer, there := h.Has.Answers[p.URL]
	if !there && h.Has.Answers != nil {
		return nil, errors.Errorf("Get %q: connection refused", p.URL)
	}
	return []byte(answer), nil
}

func (h *Host) Date(ctx context.Context, p host.Probe) (time.Time, error) {
	if h.On.Date != nil {
		return h.On.Date(ctx, p)
	}
	if h.Has.Date.IsZero() {
		return h.Now(), h.fails("Date")
	}
	return h.Has.Date, h.fails("Date")
}

func (h *Host) LookupHost(ctx context.Context, name string) ([]netip.Addr, error) {
	if h.On.LookupHost != nil {
		return h.On.LookupHost(ctx, name)
	}
	if err := h.fails("LookupHost"); err != nil {
		return nil, err
	}
	if h.Has.Names == nil {
		return h.Has.Default, nil
	}
	address, known := h.Has.Names[name]
	if !known {
		return nil, nil
	}
	return []netip.Addr{netip.MustParseAddr(address)}, nil
}

// Answers says no, unless the test has somebody there.
func (h *Host) Answers(ctx context.Context, at netip.AddrPort) (bool, error) {
	if h.On.Answers != nil {
		return h.On.Answers(ctx, at)
	}
	return false, h.fails("Answers")
}

func (h *Host) RunProgram(ctx context.Context, words []string) error {
	if h.On.RunProgram != nil {
		return h.On.RunProgram(ctx, words)
	}
	return h.ordered(ctx, "run "+strings.Join(words, " "))
}
