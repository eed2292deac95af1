// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func (h *bareHost) prepare(t *testing.T, p *Prepare) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = step.Run(t.Context(), h.env(&out), p.Phases(), step.Options{Serial: true})
	return out.String(), err
}

func (h *bareHost) mustPrepare(t *testing.T, p *Prepare) string {
	t.Helper()
	said, err := h.prepare(t, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return said
}

func (h *bareHost) plan(t *testing.T, p *Prepare) []string {
	t.Helper()
	var out bytes.Buffer
	var actions []string
	env := h.env(&out)
	env.Host = plan.NewOverlay(h, func(a host.Action) { actions = append(actions, a.String()) })
	if err := step.Run(t.Context(), env, p.Phases(), step.Options{Serial: true}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return actions
}

// TestPreparePlanIsTrue compares a plan with its run, and runs again, which does nothing.
func TestPreparePlanIsTrue(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, root string){
		"usual": func(*testing.T, string) {}, "separate /usr/local/lib": separateLib,
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			change(t, root)
			p := &Prepare{Bundle: testBundle(t, "v1.37.2"), Mirrors: []containerd.Mirror{{Registry: "registry.k8s.io", URL: "https://mirror.example"}}}
			planned := h.plan(t, p)
			var out bytes.Buffer
			var done []string
			env := h.env(&out)
			env.Host = plan.NewRecorder(h, func(a host.Action) { done = append(done, a.String()) })
			if err := step.Run(t.Context(), env, p.Phases(), step.Options{Serial: true}); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if diff := cmp.Diff(planned, done); diff != "" {
				t.Errorf("the plan and the run differ (-plan +run):\n%s", diff)
			}
			if len(done) < 25 {
				t.Errorf("%d actions only: %v", len(done), done)
			}
			if again := h.plan(t, p); len(again) > 0 {
				t.Errorf("a plan for a prepared host: %v", again)
			}
			jobs := slices.Clone(h.Orders())
			h.mustPrepare(t, p)
			if diff := cmp.Diff(jobs, h.Orders()); diff != "" {
				t.Errorf("a second run did something:\n%s", diff)
			}
		})
	}
}

// separateLib moves /usr/local/lib elsewhere, where systemd may not find it at boot.
func separateLib(t *testing.T, root string) {
	t.Helper()
	lib, elsewhere := filepath.Join(root, "/usr/local/lib"), filepath.Join(root, "elsewhere")
	if err := os.Rename(lib, elsewhere); err != nil {
		phasetest.Fatal(t, os.Mkdir(elsewhere, 0o755))
	}
	phasetest.Fatal(t, os.Symlink("../../elsewhere", lib))
}

func TestHostResetRestores(t *testing.T) {
	h, root := newBareHost(t)
	before := hostTree(t, root)
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	fixture.Put(t, root, host.FetchNotes+"/interrupted.json", "{}")
	for _, name := range []string{"net/ipv4/ip_forward", "vm/overcommit_memory"} {
		if got := fixture.Get(t, root, "/proc/sys/"+name); got != "1\n" {
			t.Errorf("%s is %q", name, got)
		}
	}
	if len(h.Has.Swap) > 0 {
		t.Errorf("swap is still on: %v", h.Has.Swap)
	}
	h.becomes(t, root, before)
	if diff := cmp.Diff([]string{"/swapfile"}, h.Has.Swap); diff != "" {
		t.Errorf("swap (-want +got):\n%s", diff)
	}
	for _, want := range []string{"disable containerd.service", "disable kubelet.service", "unmask swap.target"} {
		if !slices.Contains(h.Orders(), want) {
			t.Errorf("%q is missing: %v", want, h.Orders())
		}
	}
}

// becomes resets a host and compares it with the state before.
func (h *bareHost) becomes(t *testing.T, root string, before []string) {
	t.Helper()
	var out bytes.Buffer
	if err := step.Run(t.Context(), h.env(&out), Reset(), step.Options{Serial: true}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	after := slices.DeleteFunc(hostTree(t, root), func(line string) bool { return strings.Contains(line, "/proc/sys/net/bridge") }) // a module stays
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the host is not as before (-before +after):\n%s", diff)
	}
}

// TestPrepareWithSeparateLib: a bundle's units are in /etc then, even if an earlier release has put them elsewhere.
func TestPrepareWithSeparateLib(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		h, root := newBareHost(t)
		before, p := hostTree(t, root), &Prepare{Bundle: testBundle(t, "v1.37.2")}
		if earlier {
			h.mustPrepare(t, p)
		}
		separateLib(t, root)
		h.mustPrepare(t, p)
		for _, unit := range []string{containerd.Unit, node.KubeletUnit} {
			if state, err := h.unit(t.Context(), unit); err != nil || state.Fragment != earlyUnitDir+"/"+unit {
				t.Errorf("%s is in %q: %v", unit, state.Fragment, err)
			}
		}
		newer := h.plan(t, &Prepare{Bundle: testBundle(t, "v1.37.3")})
		if !slices.ContainsFunc(newer, func(line string) bool { return strings.Contains(line, programDir+"/containerd") }) {
			t.Errorf("its containerd counts as an operator's: a newer bundle's plan is %q", newer)
		}
		phasetest.Fatal(t, os.Mkdir(filepath.Join(root, earlyUnitDir, "other.service.d"), 0o755))
		fixture.Put(t, root, earlyUnitDir+"/own.service", "an operator's")
		before = append(before, "/elsewhere", "/etc/systemd", earlyUnitDir, earlyUnitDir+"/other.service.d", earlyUnitDir+"/own.service=an operator's", "/usr/local/lib")
		slices.Sort(before)
		h.becomes(t, root, before)
		for _, want := range []string{"disable containerd.service", "disable kubelet.service"} {
			if !slices.Contains(h.Orders(), want) {
				t.Errorf("%q is missing: %v", want, h.Orders())
			}
		}
	}
}

func hostTree(t *testing.T, root string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(path, root)
		if entry.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += "=" + string(data)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestPrepareKeepsOperators: operators' files and edits stay, and the rest is done.
func TestPrepareKeepsOperators(t *testing.T) {
	h, root := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2"), KeepSwap: true}
	fixture.Put(t, root, containerd.ConfigPath, "version = 3\n")
	fixture.Put(t, root, "/opt/cni/bin/bridge", "the operator's")
	const link, to = "/usr/local/bin/kubectl", "../../../snap/bin/kubectl"
	fixture.Put(t, root, "/snap/bin/kubectl", "the operator's")
	phasetest.Fatal(t, os.Symlink(to, filepath.Join(root, link)))
	said := h.mustPrepare(t, p)
	fixture.Put(t, root, kubeletconfig.DropInPath, "[Service]\nExecStart=\nExecStart=/opt/kubelet\n")
	said += h.mustPrepare(t, p)
	for path, want := range map[string]string{
		containerd.ConfigPath: "version = 3\n", "/opt/cni/bin/bridge": "the operator's",
		kubeletconfig.DropInPath: "[Service]\nExecStart=\nExecStart=/opt/kubelet\n",
	} {
		if got := fixture.Get(t, root, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if now, err := os.Readlink(filepath.Join(root, link)); now != to {
		t.Errorf("%s leads to %q: %v", link, now, err)
	}
	fact.In(t, said, "keeping "+containerd.ConfigPath, "keeping "+kubeletconfig.DropInPath, "/opt/cni/bin/bridge", link, "(/swapfile)")
}

// TestPrepareTightens: the kubelet's unit and drop-in are root's alone, also on a host that was prepared before they were. That's no
// reason to restart anything, and they're still Slipway's.
func TestPrepareTightens(t *testing.T) {
	h, root := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	h.mustPrepare(t, p)
	paths := []string{unitDir + "/" + node.KubeletUnit, kubeletconfig.DropInPath}
	for _, path := range paths {
		phasetest.Fatal(t, os.Chmod(filepath.Join(root, path), 0o644))
	}
	h.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Fragment: unitDir + "/" + node.KubeletUnit, Current: true}
	fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
	h.Jobs = nil
	said := h.mustPrepare(t, p)
	for _, path := range paths {
		info, err := h.Stat(path)
		if phasetest.Fatal(t, err); info.Mode() != 0o600 {
			t.Errorf("%s has mode %04o\n%s", path, info.Mode(), said)
		}
	}
	if diff := cmp.Diff([]string{"reload"}, h.Orders()); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	phasetest.Fatal(t, os.Remove(filepath.Join(root, "/etc/kubernetes/kubelet.conf")))
	phasetest.Fatal(t, step.Run(t.Context(), h.env(&bytes.Buffer{}), Reset(), step.Options{Serial: true}))
	for _, path := range paths {
		if _, err := h.Stat(path); !os.IsNotExist(err) {
			t.Errorf("host reset leaves %s: %v", path, err)
		}
	}
}

// TestPrepareRefuses: nothing is written on a host that can't be prepared.
func TestPrepareRefuses(t *testing.T) {
	packaged := host.UnitState{LoadState: "loaded", ActiveState: "active", Fragment: "/usr/lib/systemd/system/containerd.service"}
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, h *bareHost, root string)
		want  []string
	}{
		{"a runtime without CRI", func(_ *testing.T, h *bareHost, _ string) { h.Has.Units[containerd.Unit] = packaged }, []string{"[ERROR CRI]"}},
		{"a runtime with another CRI", func(_ *testing.T, h *bareHost, _ string) {
			h.Has.Units[containerd.Unit] = packaged
			h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "1.5.0", APIVersion: "v1alpha2", Ready: true}
		}, []string{"v1alpha2 of CRI"}},
		{"a sandbox image that is nowhere", func(_ *testing.T, h *bareHost, _ string) {
			h.Has.Units[containerd.Unit] = packaged
			h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.2.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd", SandboxImage: "example.test/pause:1"}
		}, []string{"example.test/pause:1"}},
		{"two runtimes", func(_ *testing.T, h *bareHost, _ string) {
			h.Has.Units[containerd.Unit] = packaged
			h.Has.Units["crio.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", Fragment: "/usr/lib/systemd/system/crio.service"}
			h.Has.Runtime = &host.RuntimeInfo{Name: "x", Version: "2.2.0", APIVersion: "v1", Ready: true}
		}, []string{": containerd.service, crio.service"}},
		{"a kernel without br_netfilter", func(t *testing.T, _ *bareHost, root string) {
			fixture.Put(t, root, "/lib/modules/6.12.1-amd64/modules.dep", "kernel/fs/overlayfs/overlay.ko.xz:\n")
		}, []string{"[ERROR KernelModules]", "br_netfilter", "kernel-modules-extra-$(uname -r)"}},
		{"a read-only file system", func(t *testing.T, h *bareHost, root string) {
			fixture.Put(t, root, "/opt/cni/bin/own", "x")
			h.Fail = map[string]error{"ProbeWrite /opt/cni/bin": errors.New("read-only file system")}
		}, []string{"[ERROR WritableFolders]", "/opt/cni/bin"}},
		{"a node of a newer cluster", func(t *testing.T, _ *bareHost, root string) {
			fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
			fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.36.4'}]}\n")
		}, []string{"kubelet (v1.37.2)", "control plane (v1.36.4)"}},
		{"a node of an unknown cluster", func(t *testing.T, _ *bareHost, root string) {
			fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
			fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: x}]}\n")
		}, []string{"version", "cluster", "not known"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, root := newBareHost(t)
			tt.setup(t, h, root)
			before := hostTree(t, root)
			said, err := h.prepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true})
			fact.Error(t, err, tt.want...)
			if fault.Remedy(err) == "" {
				t.Errorf("%v has no remedy\n%s", err, said)
			}
			if diff := cmp.Diff(before, hostTree(t, root)); diff != "" {
				t.Errorf("something was written:\n%s", diff)
			}
		})
	}
}

// TestPrepareModuleFails: a boot doesn't get a module that can't be loaded.
func TestPrepareModuleFails(t *testing.T) {
	h, _ := newBareHost(t)
	h.On.LoadModule = func(_ context.Context, name string) error { return errors.New("no module " + name) }
	_, err := h.prepare(t, &Prepare{})
	fact.Error(t, err, "br_netfilter")
	if _, err := h.Lstat(modulesPath); !os.IsNotExist(err) {
		t.Errorf("%s: %v", modulesPath, err)
	}
}

// TestPrepareAgainOnHalfANode: `up` was interrupted after its init had written kubelet.conf, so there is no cluster to ask.
func TestPrepareAgainOnHalfANode(t *testing.T) {
	h, root := newBareHost(t)
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: x}]}\n")
	for alone, want := range map[bool][]string{true: {"version", "cluster", "not known"}, false: {"for v1.37.3", "`up`"}} {
		_, err := h.prepare(t, &Prepare{Bundle: testBundle(t, "v1.37.3"), Alone: alone})
		fact.Error(t, err, want...)
	}
}

// TestPrepareKeepsSandbox: an earlier bundle's images lose their pins, except any that containerd's settings still name or that
// are gone.
func TestPrepareKeepsSandbox(t *testing.T) {
	h, root := newBareHost(t)
	const sandbox, other, gone = "registry.k8s.io/pause:3.9", "registry.k8s.io/etcd:3.5.0-0", "registry.k8s.io/kube-proxy:v1.36.0"
	h.Has.Images = []host.Image{{Names: []string{other}, Pinned: true}}
	h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.2.0", APIVersion: "v1", Ready: true}
	fixture.Put(t, root, containerd.ConfigPath, string(containerd.Config(containerd.Settings{SandboxImage: sandbox})))
	p, env := &Prepare{}, h.env(&bytes.Buffer{})
	phasetest.Fatal(t, p.note(env, func(r *prepared) { r.Images = []string{sandbox, other, gone} }))
	h.Jobs = nil
	phasetest.Fatal(t, p.importAndPin(t.Context(), env, hostRuntime{socket: containerd.Socket}, nil, nil))
	if diff := cmp.Diff([]string{"pin " + other + " false"}, h.Orders()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	record, err := readPrepared(h)
	if phasetest.Fatal(t, err); !slices.Equal(record.Images, []string{sandbox}) {
		t.Errorf("the record has %q", record.Images)
	}
}

// TestHostResetReloads: systemd forgets the removed units even if something else can't be removed.
func TestHostResetReloads(t *testing.T) {
	h, _ := newBareHost(t)
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	h.On.RemoveTree = func(path string) (host.Removal, error) { return host.Removal{}, errors.New("busy: " + path) }
	h.Jobs = nil
	err := step.Run(t.Context(), h.env(&bytes.Buffer{}), Reset(), step.Options{Serial: true})
	fact.Error(t, err, containerd.DataDir)
	if !slices.Contains(h.Orders(), "reload") {
		t.Errorf("did %q", h.Orders())
	}
}

// TestHostResetWithoutSwap finishes, and says so, if the swap of before can't be turned on: zram's has to be made first.
func TestHostResetWithoutSwap(t *testing.T) {
	h, _ := newBareHost(t)
	h.mustPrepare(t, &Prepare{})
	h.Fail["swapon /swapfile"] = errors.New("invalid argument")
	var out bytes.Buffer
	if err := step.Run(t.Context(), h.env(&out), Reset(), step.Options{Serial: true}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	phasetest.Once(t, out.String(), phasetest.Line{"[WARNING]", "invalid argument"})
	if _, err := h.Lstat(thisnode.PreparedPath); err == nil {
		t.Error("the record of the host's state before is left")
	}
}

// TestPrepareSocket: the node gets the installed runtime, even if it doesn't run yet.
func TestPrepareSocket(t *testing.T) {
	h, _ := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	for _, unit := range []string{"", "crio.service"} {
		want := "/run/containerd/containerd.sock"
		if unit != "" {
			h.Has.Units[unit] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", Fragment: "/usr/lib/systemd/system/" + unit}
			want = config.KnownSockets()[1]
		}
		got, err := p.Socket(t.Context(), h.env(&bytes.Buffer{}))
		if err != nil || got != want {
			t.Errorf("with %q: %s, want %s; %v", unit, got, want, err)
		}
	}
}

// TestPrepareDefaultSocket: a configuration's default socket is the bundle's containerd, before it's installed and afterwards.
func TestPrepareDefaultSocket(t *testing.T) {
	h, root := newBareHost(t)
	for _, version := range []string{"v1.37.1", "v1.37.2"} {
		env := h.env(&bytes.Buffer{})
		env.Machine.CRISocket = "unix://" + config.KnownSockets()[0]
		phasetest.Fatal(t, step.Run(t.Context(), env, (&Prepare{Bundle: testBundle(t, version)}).Phases(), step.Options{Serial: true}))
		if got := fixture.Get(t, root, "/usr/local/bin/containerd"); !strings.Contains(got, version) {
			t.Errorf("after the bundle of %s, containerd is %q", version, got)
		}
	}
}

// TestPrepareFindsNamedRuntime: of several runtimes, a named socket and a node's kubelet choose one.
func TestPrepareFindsNamedRuntime(t *testing.T) {
	crio := host.UnitState{LoadState: "loaded", ActiveState: "active", Fragment: "/usr/lib/systemd/system/crio.service"}
	for name, tt := range map[string]struct {
		named, kubelet string // sockets
		packaged       bool   // containerd is a package's
		beside         bool   // CRI-O's unit is where a bundle's was
		want           runtimeOwner
		unit           string
	}{
		"named":                    {named: containerd.Socket, packaged: true, want: foreignRuntime, unit: containerd.Unit},
		"a kubelet's":              {kubelet: containerd.Socket, packaged: true, want: foreignRuntime, unit: containerd.Unit},
		"a kubelet's other":        {kubelet: "unix:///var/run/crio/crio.sock", packaged: true, want: foreignRuntime, unit: "crio.service"},
		"a kubelet's other, /run":  {kubelet: "/run/crio/crio.sock", packaged: true, want: foreignRuntime, unit: "crio.service"},
		"named, in /run":           {named: "unix:///run/crio/crio.sock", want: foreignRuntime, unit: "crio.service"},
		"named, without a unit":    {named: "unix:///run/cri-dockerd.sock", want: foreignRuntime},
		"none yet":                 {named: "unix://" + config.KnownSockets()[0], want: noRuntime, unit: containerd.Unit},
		"beside a bundle's former": {beside: true, want: foreignRuntime, unit: "crio.service"},
		"neither, with one":        {want: foreignRuntime, unit: "crio.service"},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			crio := crio
			if tt.beside {
				crio.Fragment, h.reloaded = unitDir+"/crio.service", true
				fixture.Put(t, root, crio.Fragment, "[Service]\n")
				fixture.Put(t, root, "/var/lib/slipway/host.json", `{"prepared": true, "containerd": true}`)
			}
			h.Has.Units["crio.service"] = crio
			h.Has.Runtime = &host.RuntimeInfo{Name: "x", Version: "2.2.0", APIVersion: "v1", Ready: true}
			if tt.packaged {
				h.Has.Units[containerd.Unit] = host.UnitState{LoadState: "loaded", ActiveState: "active", Fragment: "/usr/lib/systemd/system/containerd.service"}
			}
			if tt.kubelet != "" {
				fixture.Put(t, root, "/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: "+tt.kubelet+"\n")
			}
			env := h.env(&bytes.Buffer{})
			env.Machine.CRISocket = tt.named
			got, err := (&Prepare{}).findRuntime(t.Context(), env)
			phasetest.Fatal(t, err)
			if got.owner != tt.want || got.unit != tt.unit {
				t.Errorf("found %+v", got)
			}
		})
	}
}

// TestPrepareKeepsItsContainerd: a runtime installed later doesn't replace a bundle's containerd.
func TestPrepareKeepsItsContainerd(t *testing.T) {
	h, _ := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	h.mustPrepare(t, p)
	h.Has.Units["crio.service"] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", Fragment: "/usr/lib/systemd/system/crio.service"}
	h.Jobs = nil
	h.mustPrepare(t, p)
	if len(h.Orders()) > 0 {
		t.Errorf("the second run did %q", h.Orders())
	}
}

// TestPrepareWithPackages uses the installed runtime, and neither replaces nor doubles it.
func TestPrepareWithPackages(t *testing.T) {
	h, root := newBareHost(t)
	h.Has.Units[containerd.Unit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Fragment: "/usr/lib/systemd/system/containerd.service"}
	h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "2.1.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"}
	said, err := h.prepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	fact.Error(t, err)
	phasetest.Once(t, said, phasetest.Line{"[WARNING]", "sandbox image", "report"})
	for _, path := range []string{"/usr/local/bin/containerd", "/usr/local/bin/runc", containerd.ConfigPath, unitDir + "/" + containerd.Unit} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s was written beside the operator's runtime", path)
		}
	}
	if got := fixture.Get(t, root, "/usr/local/bin/kubelet"); got != "kubelet v1.37.2" {
		t.Errorf("the kubelet is %q", got)
	}
	var out bytes.Buffer
	if err := step.Run(t.Context(), h.env(&out), Reset(), step.Options{Serial: true}); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(h.Orders(), func(j string) bool { return strings.HasSuffix(j, containerd.Unit) }) {
		t.Errorf("the operator's runtime was touched: %v", h.Orders())
	}
}

// TestPrepareNode replaces a node's programs with a newer bundle's, and restarts their units.
func TestPrepareNode(t *testing.T) {
	h, root := newBareHost(t)
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.1")})
	for path, text := range map[string]string{
		"/etc/kubernetes/kubelet.conf": "x", "/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n",
		"/etc/kubernetes/manifests/kube-apiserver.yaml": "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.37.2'}]}\n",
	} {
		fixture.Put(t, root, path, text)
	}
	for _, unit := range []string{node.KubeletUnit, containerd.Unit} {
		state := h.Has.Units[unit]
		state.ActiveState, state.Replaced = "active", true // as systemd reports a replaced program
		h.Has.Units[unit] = state
	}
	h.Jobs = nil
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true})
	if got := fixture.Get(t, root, "/usr/local/bin/kubelet"); got != "kubelet v1.37.2" {
		t.Errorf("the kubelet is %q", got)
	}
	if diff := cmp.Diff([]string{"restart containerd.service", "restart kubelet.service"}, h.Orders()); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

// TestPrepareNeedsNoSpaceAgain: a prepared host has room for everything that's still missing, which is nothing.
func TestPrepareNeedsNoSpaceAgain(t *testing.T) {
	h, _ := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	h.mustPrepare(t, p)
	h.Has.Space = map[string]host.Space{"/": {Free: 1, Total: 100}}
	h.mustPrepare(t, p)
}

// TestPrepareSizesOfImages: images go to containerd's directory, whosever containerd it is, and to no other runtime.
func TestPrepareSizesOfImages(t *testing.T) {
	const elsewhere = "/data/containerd"
	for name, row := range map[string]struct {
		found hostRuntime
		told  string // where the runtime keeps images
		want  []string
	}{
		"a bundle's":                        {hostRuntime{socket: containerd.Socket, owner: bundledRuntime}, "", []string{containerd.DataDir}},
		"none yet":                          {hostRuntime{socket: containerd.Socket}, "", []string{containerd.DataDir}},
		"a distribution's":                  {hostRuntime{socket: containerd.Socket, owner: foreignRuntime}, elsewhere, []string{elsewhere}},
		"a distribution's that doesn't say": {hostRuntime{socket: containerd.Socket, owner: foreignRuntime}, "", []string{containerd.DataDir}},
		"another":                           {hostRuntime{socket: "unix://" + config.KnownSockets()[1], owner: foreignRuntime}, elsewhere, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newBareHost(t)
			h.Has.ImageDir = row.told
			p := &Prepare{Bundle: imageBundle(t, "registry.k8s.io/pause:3.10.2")}
			sizes := p.sizes(t.Context(), h.env(&bytes.Buffer{}), row.found, pendingFiles{})
			if got := slices.Sorted(maps.Keys(sizes)); !slices.Equal(got, row.want) {
				t.Errorf("needs space in %q, want %q", got, row.want)
			}
		})
	}
}

// TestPrepareRouteAway: a host whose IPv6 route is away for a moment still takes it from advertisements after the next boot.
func TestPrepareRouteAway(t *testing.T) {
	h, root := newBareHost(t)
	h.mustPrepare(t, &Prepare{})
	before := fixture.Get(t, root, sysctlPath)
	h.Has.Default = h.Has.Default[:1]
	h.mustPrepare(t, &Prepare{})
	if diff := cmp.Diff(before, fixture.Get(t, root, sysctlPath)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	fact.In(t, before, "-net/ipv6/conf/eth0/accept_ra = 2")
	if strings.Index(before, "accept_ra") > strings.Index(before, "net/ipv6/conf/all/forwarding") {
		t.Errorf("the host forwards before it accepts routes, and loses them:\n%s", before)
	}
}

// TestPrepareCrashingKubelet: a rerun doesn't take a node whose kubelet crashes, or has given up, for prepared.
func TestPrepareCrashingKubelet(t *testing.T) {
	for _, active := range []string{"activating", "failed", "inactive"} {
		h, root := newBareHost(t)
		p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
		h.mustPrepare(t, p)
		fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
		fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.37.2'}]}\n")
		state := h.Has.Units[node.KubeletUnit]
		state.ActiveState = active
		h.Has.Units[node.KubeletUnit] = state
		h.Fail["restart "+node.KubeletUnit] = errors.New("status=203/EXEC")
		_, err := h.prepare(t, p)
		var want []string
		if active != "inactive" { // somebody has stopped it
			want = []string{"status=203/EXEC"}
		}
		fact.Error(t, err, want...)
	}
}

// TestPrepareWithout a bundle does everything that needs no download, and says what's missing.
func TestPrepareWithout(t *testing.T) {
	h, root := newBareHost(t)
	said := h.mustPrepare(t, &Prepare{})
	if got := fixture.Get(t, root, sysctlPath); !strings.Contains(got, "net/ipv4/ip_forward = 1") {
		t.Errorf("%s is %q", sysctlPath, got)
	}
	phasetest.Once(t, said, phasetest.Line{"lacks", "container runtime", "kubelet"})
	fact.In(t, said, "https://containerd.io/downloads/")
}
