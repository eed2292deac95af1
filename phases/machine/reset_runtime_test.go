// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func (h *bareHost) resetHost(t *testing.T, ignore ...string) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	env := h.env(&out)
	env.Machine.IgnorePreflightErrors = ignore
	err = step.Run(t.Context(), env, Reset(), step.Options{Serial: true})
	return out.String(), err
}

// runtimeData is a containerd's own data, with a container that has ended.
var runtimeData = []string{
	containerd.DataDir + "/io.containerd.metadata.v1.bolt/meta.db", "/run/containerd/containerd.sock", "/opt/containerd/bin/plugin",
}

// installsContainerd gives a host a running containerd with a unit at a path.
func (h *bareHost) installsContainerd(t *testing.T, root, unit string) {
	t.Helper()
	if unit != "" {
		_ = os.Remove(filepath.Join(root, unit)) // as tar and install do
		fixture.Put(t, root, unit, "[Service]\nExecStart=/usr/local/bin/containerd\n")
		h.Has.Units[containerd.Unit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Fragment: unit}
		h.reloaded = true
		phasetest.Fatal(t, os.MkdirAll(filepath.Join(root, "/etc/cni/net.d"), 0o755)) // which it watches
	}
	for _, path := range runtimeData {
		fixture.Put(t, root, path, "theirs")
	}
	h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.2.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"}
}

// TestHostResetLeavesOtherRuntimes: a container runtime that no bundle brought stays, with all it has, and is named, even if it
// was installed after the host was prepared.
func TestHostResetLeavesOtherRuntimes(t *testing.T) {
	const packaged = "/usr/lib/systemd/system/containerd.service"
	for name, tt := range map[string]struct {
		bundle  bool
		install func(t *testing.T, h *bareHost, root string)
		stay    []string // beside runtimeData
		gone    []string
	}{
		"from its own guide": {install: func(t *testing.T, h *bareHost, root string) {
			h.installsContainerd(t, root, unitDir+"/"+containerd.Unit)
		}, stay: []string{unitDir + "/" + containerd.Unit, "/etc/cni/net.d"}},
		"from a package": {install: func(t *testing.T, h *bareHost, root string) { h.installsContainerd(t, root, packaged) }, stay: []string{packaged, "/etc/cni/net.d"}},
		"without a unit": {install: func(t *testing.T, h *bareHost, root string) { h.installsContainerd(t, root, "") }},
		"in place of the bundle's": {
			bundle: true,
			install: func(t *testing.T, h *bareHost, root string) {
				h.installsContainerd(t, root, unitDir+"/"+containerd.Unit)
				_ = os.Remove(filepath.Join(root, "/usr/local/bin/containerd"))
				fixture.Put(t, root, "/usr/local/bin/containerd", "a newer one")
			},
			stay: []string{unitDir + "/" + containerd.Unit, containerd.ConfigPath, "/usr/local/bin/containerd", "/usr/local/bin/runc", containerd.ProxyEnvPath},
			gone: []string{"/usr/local/bin/kubelet", kubeletconfig.DropInPath},
		},
		"copied over the bundle's program": {
			bundle: true,
			install: func(t *testing.T, h *bareHost, root string) {
				fixture.Put(t, root, "/usr/local/bin/containerd", "a newer one")
				for _, path := range runtimeData {
					fixture.Put(t, root, path, "theirs")
				}
			},
			stay: []string{unitDir + "/" + containerd.Unit, containerd.ConfigPath, "/usr/local/bin/containerd", "/usr/local/bin/runc", "/etc/cni/net.d"},
		},
		"the bundle's, used by Docker": {
			bundle: true,
			install: func(t *testing.T, _ *bareHost, root string) {
				for _, path := range append(slices.Clone(runtimeData), containerd.DataDir+"/io.containerd.runtime.v2.task/moby/x") {
					fixture.Put(t, root, path, "theirs")
				}
			},
			stay: []string{unitDir + "/" + containerd.Unit, containerd.ConfigPath, "/usr/local/bin/containerd", "/usr/local/bin/runc", "/etc/cni/net.d"},
			gone: []string{"/usr/local/bin/kubelet", kubeletconfig.DropInPath},
		},
		"a package's beside the bundle's files": {
			bundle: true,
			install: func(t *testing.T, h *bareHost, root string) {
				_ = os.Remove(filepath.Join(root, unitDir+"/"+containerd.Unit))
				h.installsContainerd(t, root, packaged)
			},
			stay: []string{packaged, containerd.ConfigPath, "/usr/local/bin/runc"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			p := &Prepare{}
			if tt.bundle {
				p.Bundle = testBundle(t, "v1.37.2")
			}
			h.mustPrepare(t, p)
			tt.install(t, h, root)
			h.Jobs = nil
			said, err := h.resetHost(t)
			fact.Error(t, err)
			for _, path := range append(slices.Clone(runtimeData), tt.stay...) {
				if _, err := h.Lstat(path); err != nil {
					t.Errorf("%v\n%s", err, said)
				}
			}
			for _, path := range tt.gone {
				if _, err := h.Lstat(path); err == nil {
					t.Errorf("%s is still there", path)
				}
			}
			if i := slices.IndexFunc(h.Orders(), func(o string) bool { return strings.HasSuffix(o, containerd.Unit) || strings.HasPrefix(o, "unmount") }); i >= 0 {
				t.Errorf("the operator's runtime was touched: %q", h.Orders()[i])
			}
			phasetest.Once(t, said, phasetest.Line{"[WARNING]", containerd.DataDir, "/run/containerd", "/opt/containerd"})
		})
	}
}

// TestHostResetOfContainers refuses while containers run, no matter who installed their runtime and where it keeps its state, and
// names each once, with its process. If the refusal is ignored, an operator's containers go on.
func TestHostResetOfContainers(t *testing.T) {
	const shim = "/usr/bin/containerd-shim-runc-v2\x00-namespace\x00moby\x00-id\x00ghi\x00-address\x00"
	const shimSocket = "/run/containerd/s/1234"
	const k3s, snapDocker = "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/jkl", "/run/snap.docker/containerd/daemon/io.containerd.runtime.v2.task/moby/ghi"
	for name, files := range map[string]map[string]string{
		"moby/abc":    {"/run/containerd/io.containerd.runtime.v2.task/moby/abc/rootfs/file": ""},
		"moby/def":    {"/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/def/rootfs/file": ""},
		"moby/ghi":    {snapDocker + "/rootfs/file": "", "/proc/77/cmdline": shim + "/run/snap.docker/containerd/containerd.sock\x00"},
		"k8s.io/jkl":  {k3s + "/rootfs/file": "", "/proc/77/cmdline": shim + "/run/k3s/containerd/containerd.sock\x00"},
		"default/rst": {"/proc/77/cmdline": "/usr/local/bin/containerd-shim-runc-v2\x00-namespace\x00default\x00-id\x00rst\x00-address\x00/run/user/1000/c.sock\x00"},
		"moby/uvw":    {"/proc/77/cmdline": "containerd-shim\x00-namespace\x00moby\x00-workdir\x00/data/moby/uvw\x00-address\x00/mine/c.sock\x00"},
		"conmon/web":  {"/proc/77/cmdline": "/usr/bin/conmon\x00--api-version\x001\x00-c\x00mno\x00-n\x00web\x00"},
		"conmon/mno":  {"/proc/77/cmdline": "/usr/libexec/crio/conmon\x00-b\x00/run/x\x00-c\x00mno\x00"},
		"conmonrs/pq": {"/proc/77/cmdline": "/usr/libexec/crio/conmonrs\x00--runtime-dir\x00/run/containers/storage/overlay-containers/pq/userdata\x00"},
	} {
		for _, bundled := range []bool{false, true} {
			h, root := newBareHost(t)
			p := &Prepare{}
			if bundled {
				p.Bundle = testBundle(t, "v1.37.2")
			}
			h.mustPrepare(t, p)
			for path, text := range files {
				fixture.Put(t, root, path, text)
			}
			facts := []string{"[ERROR NoContainers]", name}
			if _, seen := files["/proc/77/cmdline"]; seen {
				fixture.Put(t, root, "/proc/77/status", "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
				facts = append(facts, "77", "1000")
			}
			_, err := h.resetHost(t)
			fact.Error(t, err, facts...)
			if n := strings.Count(fmt.Sprint(err), name); n != 1 {
				t.Errorf("%s is there %d times:\n%v", name, n, err)
			}
			fixture.Put(t, root, shimSocket, "")
			_, err = h.resetHost(t, "nocontainers")
			fact.Error(t, err)
			for path := range files {
				if _, err := h.Lstat(path); err != nil {
					t.Errorf("of a container: %v", err)
				}
			}
			if _, err := h.Lstat(shimSocket); err != nil {
				t.Errorf("of its shim: %v", err)
			}
		}
	}
}

// TestHostResetCannotSeeContainers: a check that couldn't look doesn't pass. Ended processes, and the kernel's, don't count.
func TestHostResetCannotSeeContainers(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, h *bareHost, root string)
		seen  bool
	}{
		"others": {seen: true, spoil: func(t *testing.T, _ *bareHost, root string) {
			fixture.Put(t, root, "/proc/2/cmdline", "")
			fixture.Put(t, root, "/proc/78/stat", "")
			fixture.Put(t, root, "/proc/79/cmdline", "/usr/bin/vi\x00conmon\x00")
		}},
		"hidden": {spoil: func(t *testing.T, _ *bareHost, root string) {
			phasetest.Fatal(t, os.RemoveAll(filepath.Join(root, "/proc/1")))
		}},
		"a failure": {spoil: func(t *testing.T, h *bareHost, root string) {
			phasetest.Fatal(t, os.RemoveAll(filepath.Join(root, "/proc/1/cmdline")))
			phasetest.Fatal(t, os.Mkdir(filepath.Join(root, "/proc/1/cmdline"), 0o755))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			h.mustPrepare(t, &Prepare{})
			tt.spoil(t, h, root)
			if _, err := h.resetHost(t); tt.seen {
				fact.Error(t, err)
			} else {
				fact.Error(t, err, "[ERROR NoContainers]", "/proc")
			}
		})
	}
}

// TestHostResetAsksTheSocketOfThePreparation for its imported images, and leaves any whose name somebody gave to another.
func TestHostResetAsksTheSocketOfThePreparation(t *testing.T) {
	const socket, ours, theirs, pinned = "unix:///run/other/containerd/containerd.sock", "example.test/ours:1", "example.test/theirs:1", "example.test/pinned:1"
	h, root := newBareHost(t)
	fixture.Put(t, root, "/run/other/containerd/containerd.sock", "")
	h.Has.Images = []host.Image{{Names: []string{ours}, ID: "sha256:1"}, {Names: []string{theirs}, ID: "sha256:3"}, {Names: []string{pinned}, ID: "sha256:4"}}
	p, env := &Prepare{}, h.env(&bytes.Buffer{})
	phasetest.Fatal(t, p.note(env, func(r *prepared) {
		r.Prepared, r.Socket, r.Images, r.Imported = true, socket, []string{ours, pinned, theirs}, []string{ours, theirs}
		r.ImageIDs = map[string][]string{ours: {"sha256:1"}, theirs: {"sha256:2"}}
	}))
	var asked []string
	h.On.RuntimeInfo = func(_ context.Context, socket string) (host.RuntimeInfo, error) {
		asked = append(asked, socket)
		return host.RuntimeInfo{APIVersion: "v1", Ready: true}, nil
	}
	said, err := h.resetHost(t)
	fact.Error(t, err)
	if !slices.Equal(slices.Compact(asked), []string{socket}) {
		t.Errorf("asked %q", asked)
	}
	if diff := cmp.Diff([]string{"remove " + ours, "pin " + pinned + " false"}, h.Orders()); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	phasetest.Once(t, said, phasetest.Line{"[WARNING]", theirs, "sha256:3"})
}

// TestHostResetWithoutTheRuntime goes on, and says it couldn't look for images.
func TestHostResetWithoutTheRuntime(t *testing.T) {
	h, _ := newBareHost(t)
	p, env := &Prepare{}, h.env(&bytes.Buffer{})
	phasetest.Fatal(t, p.note(env, func(r *prepared) {
		r.Prepared, r.Socket, r.Images = true, "unix:///run/gone.sock", []string{"example.test/a:1"}
	}))
	said, err := h.resetHost(t)
	fact.Error(t, err)
	phasetest.Once(t, said, phasetest.Line{"[WARNING]", "unix:///run/gone.sock", "images"}, phasetest.Line{"example.test/a:1"})
}

// TestHostResetLeavesOtherUnits doesn't disable a unit that has replaced the enabled one.
func TestHostResetLeavesOtherUnits(t *testing.T) {
	h, root := newBareHost(t)
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	_ = os.Remove(filepath.Join(root, unitDir+"/"+node.KubeletUnit))
	h.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled", Fragment: "/usr/lib/systemd/system/kubelet.service"}
	_, err := h.resetHost(t)
	fact.Error(t, err)
	if got := h.Did("disable"); !slices.Equal(got, []string{containerd.Unit}) {
		t.Errorf("disabled %q", got)
	}
}

// TestHostResetParameters restores parameters that still have the preparation's value and that nothing else sets or needs.
func TestHostResetParameters(t *testing.T) {
	const forward, panics = "net/ipv4/ip_forward", "kernel/panic"
	const forward6, accept, bridged = "net/ipv6/conf/all/forwarding", "net/ipv6/conf/eth0/accept_ra", "net/bridge/bridge-nf-call-iptables"
	stays := map[string]string{forward: "1", forward6: "1", accept: "2", bridged: "1", panics: "0"}
	back := map[string]string{forward: "0", forward6: "0", accept: "1", bridged: "0", panics: "0"}
	for name, tt := range map[string]struct {
		files map[string]string
		units []string
		links []host.Interface
		fail  string // a question that gets no answer
		want  map[string]string
		said  []string
	}{
		"as it was":              {want: back},
		"set to something else":  {files: map[string]string{"/proc/sys/" + forward: "2\n", "/proc/sys/" + panics: "60\n"}, want: map[string]string{forward: "2", panics: "60"}},
		"set at boot":            {files: map[string]string{"/etc/sysctl.d/99-mine.conf": "net.ipv4.ip_forward=1\nkernel.panic = 10\n"}, want: map[string]string{forward: "1", panics: "10"}},
		"set at boot, earlier":   {files: map[string]string{"/usr/lib/sysctl.d/10-x.conf": "net.ipv4.ip_forward = 1\n"}, want: map[string]string{forward: "1", panics: "0"}},
		"set in sysctl.conf":     {files: map[string]string{"/etc/sysctl.conf": "net/ipv4/ip_forward = 1\n"}, want: map[string]string{forward: "1", panics: "0"}},
		"set by a pattern":       {files: map[string]string{"/etc/sysctl.d/99-mine.conf": "net.*.ip_forward = 1\n"}, want: map[string]string{forward: "1", panics: "0"}},
		"set to the earlier one": {files: map[string]string{"/etc/sysctl.d/99-mine.conf": "net.ipv4.ip_forward = 0\n"}, want: map[string]string{forward: "0", panics: "0"}},
		"needed by Docker":       {units: []string{"docker.service"}, want: stays, said: []string{"docker.service"}},
		"needed by containerd":   {units: []string{containerd.Unit}, want: stays, said: []string{containerd.Unit}},
		"a bridge with ports": {links: []host.Interface{{Name: "docker0", Kind: "bridge"}, {Name: "vethd4c3b2a", Kind: "veth", Master: "docker0"}},
			want: stays, said: []string{"docker0"}},
		"a bridge to the outside":      {links: []host.Interface{{Name: "br0", Kind: "bridge", Default: true}, {Name: "eth1", Master: "br0"}}, want: stays, said: []string{"br0"}},
		"a container without a bridge": {links: []host.Interface{{Name: "ve-web", Kind: "veth"}}, want: stays, said: []string{"ve-web"}},
		"a virtual machine":            {links: []host.Interface{{Name: "tap0", Kind: "tuntap"}}, want: stays, said: []string{"tap0"}},
		"what a Pod network leaves": {links: []host.Interface{
			{Name: "cni0", Kind: "bridge"}, {Name: "veth01", Kind: "veth", Master: "cni0"}, {Name: "flannel.1", Kind: "vxlan"}, {Name: "kube-ipvs0", Kind: "dummy"},
		}, want: back},
		"more lines": {links: []host.Interface{
			{Name: "host0", Kind: "veth", Default: true}, {Name: "bond0", Kind: "bond"}, {Name: "eth1", Master: "bond0"}, {Name: "bond0.7", Kind: "vlan"},
		}, want: back},
		"interfaces that nobody can list": {fail: "Interfaces", want: stays, said: []string{"netlink"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			fixture.Put(t, root, "/proc/sys/"+panics, "0\n")
			phasetest.Fatal(t, h.loadModule(t.Context(), "br_netfilter"))
			h.mustPrepare(t, &Prepare{})
			fixture.Put(t, root, "/proc/sys/"+panics, "10\n") // as the kubelet does
			for path, text := range tt.files {
				fixture.Put(t, root, path, text)
			}
			for _, unit := range tt.units {
				h.Has.Units[unit] = host.UnitState{LoadState: "loaded", ActiveState: "active", Fragment: "/usr/lib/systemd/system/" + unit}
				fixture.Put(t, root, "/usr/lib/systemd/system/"+unit, "[Service]\n")
			}
			h.Has.Interfaces = append(h.Has.Interfaces, tt.links...)
			h.Fail[tt.fail] = errors.New("netlink is not there")
			said, err := h.resetHost(t)
			fact.Error(t, err)
			fact.In(t, said, tt.said...)
			for name, want := range tt.want {
				if got := strings.TrimSpace(fixture.Get(t, root, "/proc/sys/"+name)); got != want {
					t.Errorf("%s is %s, want %s\n%s", name, got, want, said)
				}
			}
		})
	}
}
