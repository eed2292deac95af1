// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// bareHost is a host to prepare: its files are in a directory, and what systemd, the runtime and the kernel would do is
// in memory.
type bareHost struct {
	*host.Real

	mu      sync.Mutex
	units   map[string]host.UnitState
	runtime *host.RuntimeInfo // nil if it does not answer
	images  []host.Image
	swap    []string
	jobs    []string
	v4, v6  netip.Addr // of the default routes
	selinux bool
	// relabelled are the paths whose SELinux contexts were restored.
	relabelled []string
	reloads    int
}

func newBareHost(t *testing.T) (*bareHost, string) {
	t.Helper()
	root := inMemory(t)
	h := &bareHost{Real: host.NewAt(root), units: map[string]host.UnitState{}, swap: []string{"/swapfile"},
		v4: netip.MustParseAddr("192.0.2.9"), v6: netip.MustParseAddr("fd00::9")}
	t.Cleanup(h.Close)
	for path, text := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":              "0\n",
		"/proc/sys/net/ipv6/conf/all/forwarding":     "0\n",
		"/proc/sys/net/ipv6/conf/eth0/accept_ra":     "1\n",
		"/proc/sys/net/ipv4/conf/all/route_localnet": "0\n",
		"/proc/self/mountinfo":                       "",
		"/proc/filesystems":                          "nodev\toverlay\n",
		"/run/systemd/system/x":                      "",
		"/etc/hostname":                              "h\n",
		"/usr/local/bin/other":                       "somebody's",
		"/sys/fs/cgroup/cgroup.controllers":          "cpu memory pids\n",
	} {
		fixture.Put(t, root, path, text)
	}
	return h, root
}

func (h *bareHost) did(format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, fmt.Sprintf(format, args...))
	return nil
}

// Unit knows the units that have a file here, and those that a test has set.
func (h *bareHost) Unit(_ context.Context, name string) (host.UnitState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state, known := h.units[name]
	if !known {
		state = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	}
	path := "/usr/local/lib/systemd/system/" + name
	if _, err := h.Stat(path); err == nil && h.reloads > 0 {
		state.LoadState, state.Fragment, state.Current = "loaded", path, true
	} else if !known || state.Fragment == path {
		state = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	}
	return state, nil
}

func (h *bareHost) set(verb, name string, change func(*host.UnitState)) error {
	state, err := h.Unit(context.Background(), name)
	if err != nil {
		return err
	}
	change(&state)
	h.mu.Lock()
	h.units[name] = state
	h.mu.Unlock()
	return h.did("%s %s", verb, name)
}

func (h *bareHost) ReloadUnits(context.Context) error { h.reloads++; return nil }
func (h *bareHost) EnableUnit(_ context.Context, name string) error {
	return h.set("enable", name, func(s *host.UnitState) { s.UnitFileState = "enabled" })
}
func (h *bareHost) DisableUnit(_ context.Context, name string) error {
	return h.set("disable", name, func(s *host.UnitState) { s.UnitFileState = "disabled" })
}
func (h *bareHost) MaskUnit(_ context.Context, name string) error {
	return h.set("mask", name, func(s *host.UnitState) { s.UnitFileState = "masked" })
}
func (h *bareHost) UnmaskUnit(_ context.Context, name string) error {
	return h.set("unmask", name, func(s *host.UnitState) { s.UnitFileState = "static" })
}
func (h *bareHost) StartUnit(_ context.Context, name string) error {
	h.runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.2.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"}
	return h.set("start", name, func(s *host.UnitState) {
		s.ActiveState, s.ActiveSince = "active", time.Now().Add(time.Second) // of a file system with coarse times
	})
}
func (h *bareHost) RestartUnit(_ context.Context, name string) error {
	return h.did("restart %s", name)
}
func (h *bareHost) StopUnit(_ context.Context, name string) error {
	return h.set("stop", name, func(s *host.UnitState) { s.ActiveState = "inactive" })
}

func (h *bareHost) RuntimeInfo(_ context.Context, socket string) (host.RuntimeInfo, error) {
	if h.runtime == nil {
		return host.RuntimeInfo{}, &host.RuntimeError{Socket: socket, Op: "ask", Reason: "nothing answers", Fix: "start it"}
	}
	return *h.runtime, nil
}

func (h *bareHost) AwaitRuntime(ctx context.Context, socket string) error {
	_, err := h.RuntimeInfo(ctx, socket)
	return err
}

func (h *bareHost) Images(ctx context.Context, socket string) ([]host.Image, error) {
	_, err := h.RuntimeInfo(ctx, socket)
	return slices.Clone(h.images), err
}

func (h *bareHost) ImagePresent(_ context.Context, _, image string) (bool, error) {
	return slices.ContainsFunc(h.images, func(i host.Image) bool { return slices.Contains(i.Names, image) }), nil
}

func (h *bareHost) ImportImages(_ context.Context, _ string, names []string, archive func(io.Writer) error) error {
	for _, name := range names {
		h.images = append(h.images, host.Image{Names: []string{name}, Pinned: true})
	}
	return archive(io.Discard)
}

func (h *bareHost) PinImage(_ context.Context, _, image string, pinned bool) error {
	for i := range h.images {
		if slices.Contains(h.images[i].Names, image) {
			h.images[i].Pinned = pinned
		}
	}
	return h.did("pin %s %t", image, pinned)
}

func (h *bareHost) RemoveImage(_ context.Context, _, image string) error {
	h.images = slices.DeleteFunc(h.images, func(i host.Image) bool { return slices.Contains(i.Names, image) })
	return h.did("remove %s", image)
}

// LoadModule brings the parameters of br_netfilter.
func (h *bareHost) LoadModule(_ context.Context, name string) error {
	for _, p := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		if _, err := h.Stat("/proc/sys/net/bridge/" + p); err == nil {
			continue
		}
		if err := h.EnsureDir("/proc/sys/net/bridge", 0o755); err != nil {
			return err
		}
		if _, err := h.WriteFile("/proc/sys/net/bridge/"+p, []byte("0\n"), 0o644); err != nil {
			return err
		}
	}
	return h.did("load %s", name)
}

func (h *bareHost) Swap() ([]string, error) { return slices.Clone(h.swap), nil }
func (h *bareHost) SwapOff(area string) error {
	h.swap = nil
	return h.did("swapoff %s", area)
}
func (h *bareHost) SwapOn(area string) error {
	h.swap = []string{area}
	return h.did("swapon %s", area)
}

func (h *bareHost) Probe(context.Context, host.Probe) error { return nil }
func (h *bareHost) SELinux() bool                           { return h.selinux }
func (h *bareHost) EmptyTables() ([]host.Leftover, error)   { return nil, nil }
func (h *bareHost) RestoreContexts(_ context.Context, paths []string) error {
	h.relabelled = append(h.relabelled, paths...)
	return nil
}
func (h *bareHost) DefaultAddress(ipv6 bool) (netip.Addr, error) {
	if ipv6 {
		return h.v6, nil
	}
	return h.v4, nil
}
func (h *bareHost) Interfaces() ([]host.Interface, error) {
	return []host.Interface{{Name: "eth0", Addresses: []netip.Addr{netip.MustParseAddr("fd00::9")}}}, nil
}
func (h *bareHost) EffectiveUID() int { return 0 }
func (h *bareHost) Environ() []string { return []string{"https_proxy=http://proxy.example:3128"} }
func (h *bareHost) LookPath(name string) (string, error) {
	if name == "restorecon" {
		return "/sbin/restorecon", nil
	}
	path := filepath.Join(programDir, name)
	_, err := h.Lstat(path)
	return path, err
}

// ProgramVersion is what the bundle's programs hold in place of a program.
func (h *bareHost) ProgramVersion(_ context.Context, path string) (string, error) {
	data, err := h.ReadFile(path)
	return strings.Replace(string(data), "kubelet ", "Kubernetes ", 1), err
}

func (h *bareHost) KernelRelease() (string, error) { return "6.1.0", nil }
func (h *bareHost) Space(string) (host.Space, error) {
	return host.Space{Free: 1 << 40, Total: 1 << 41}, nil
}

// env is for phases on h; what they say goes to said.
func (h *bareHost) env(said *bytes.Buffer) *Env {
	node := config.APINode("", nil)
	node.IgnorePreflightErrors = []string{"systemverification"}
	node.BindPort = config.DefaultBindPort
	return &Env{Config: node, Host: h, UI: ui.NewLines(said, said)}
}

// testBundle has small files in the place of programs, each with its name and a release's version as content.
func testBundle(t *testing.T, version string) *bundle.Bundle {
	t.Helper()
	return openBundle(t, writeBundle(t, version))
}

func writeBundle(t *testing.T, version string) (path string) {
	t.Helper()
	dir := t.TempDir()
	list := "apiVersion: slipway.bundle/v1\nkind: BundleParts\nkubernetesVersion: " + version + "\nos: linux\narchitecture: amd64\nparts:\n"
	for _, p := range []struct{ name, kind string }{
		{"kubelet", "program"}, {"kubectl", "program"}, {"containerd", "program"}, {"containerd-shim-runc-v2", "program"},
		{"ctr", "program"}, {"runc", "program"}, {"bridge", "cni-plugin"},
	} {
		list += fmt.Sprintf("- {name: %s, type: %s, version: %s, source: test, license: Apache-2.0, file: %s}\n", p.name, p.kind, version, p.name)
		if err := os.WriteFile(filepath.Join(dir, p.name), []byte(p.name+" "+version), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	parts, err := bundle.ReadList(dir)
	if err != nil {
		t.Fatal(err)
	}
	for program, content := range BundledUnits() {
		parts.Provide(bundle.ListedPart{Name: program + ".service", Type: bundle.Unit, Version: version, Source: "test", License: "Apache-2.0"}, content)
	}
	out := filepath.Join(dir, "bundle.tar")
	if err := (bundle.Create{List: parts, Output: out, Say: func(string, ...any) {}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

func openBundle(t *testing.T, path string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Open(path, bundle.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}
