// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

type bareHost struct {
	*teststage.Host
	reloaded bool // systemd knows the units that have a file
}

func newBareHost(t *testing.T) (*bareHost, string) {
	t.Helper()
	root := teststage.Dir(t)
	h := &bareHost{Host: teststage.At(root)}
	v6 := netip.MustParseAddr("fd00::9")
	h.Has.Units, h.Has.Runtime, h.Has.Swap = map[string]host.UnitState{}, nil, []string{"/swapfile"}
	h.Has.Default = []netip.Addr{netip.MustParseAddr("192.0.2.9"), v6}
	h.Has.Interfaces = []host.Interface{{Name: "eth0", Addresses: []netip.Addr{v6}}}
	h.Has.Environ = []string{"https_proxy=http://proxy.example:3128"}
	h.On.Unit, h.On.LookPath, h.On.ProgramVersion, h.On.LoadModule = h.unit, h.lookPath, h.programVersion, h.loadModule
	h.Before = h.before
	for path, text := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":              "0\n",
		"/proc/sys/net/ipv6/conf/all/forwarding":     "0\n",
		"/proc/sys/net/ipv6/conf/eth0/accept_ra":     "1\n",
		"/proc/sys/net/ipv4/conf/all/route_localnet": "0\n",
		"/proc/sys/vm/overcommit_memory":             "0\n",
		"/proc/self/mountinfo":                       "",
		"/proc/1/cmdline":                            "/sbin/init\x00",
		"/proc/filesystems":                          "nodev\toverlay\n",
		"/run/systemd/system/x":                      "",
		"/etc/hostname":                              "h\n",
		"/etc/resolv.conf":                           "nameserver 192.0.2.1\n",
		"/usr/local/bin/other":                       "somebody's",
		"/sys/fs/cgroup/cgroup.controllers":          "cpu memory pids\n",
	} {
		fixture.Put(t, root, path, text)
	}
	return h, root
}

// before starts the runtime with its unit.
func (h *bareHost) before(_ context.Context, order string) error {
	if strings.HasPrefix(order, "start ") {
		h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.2.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"}
	}
	h.reloaded = h.reloaded || order == "reload"
	return nil
}

// unit finds a unit with a file on this host, or set by the test.
func (h *bareHost) unit(_ context.Context, name string) (host.UnitState, error) {
	absent := host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	state, known := h.Has.Units[name]
	if !known {
		state = absent
	}
	for _, path := range unitPaths(name) {
		if _, err := h.Stat(path); err == nil && h.reloaded {
			state.LoadState, state.Fragment, state.Current = "loaded", path, true
		} else if state.Fragment == path {
			state = absent
		}
	}
	return state, nil
}

// loadModule brings the parameters of br_netfilter.
func (h *bareHost) loadModule(context.Context, string) error {
	const dir = "/proc/sys/net/bridge/"
	for _, p := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		if _, err := h.Stat(dir + p); err == nil {
			continue
		}
		if err := h.Real.EnsureDir(dir, 0o755); err != nil {
			return err
		}
		if _, err := h.Real.WriteFile(dir+p, []byte("0\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (h *bareHost) lookPath(name string) (string, error) {
	if name == "restorecon" {
		return "/sbin/restorecon", nil
	}
	path := filepath.Join(programDir, name)
	_, err := h.Lstat(path)
	return path, err
}

// programVersion is the content of the file in a program's place.
func (h *bareHost) programVersion(_ context.Context, path string) (string, error) {
	data, err := h.ReadFile(path)
	return strings.Replace(string(data), "kubelet ", "Kubernetes ", 1), err
}

// env is for phases on h; their output goes to said.
func (h *bareHost) env(said *bytes.Buffer) *step.Env {
	m := config.DefaultMachine()
	m.IgnorePreflightErrors = []string{"systemverification"}
	return &step.Env{Machine: m, Host: h, UI: ui.NewLines(said, said)}
}

// testBundle has small files in place of programs, containing their names and a release's version.
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
