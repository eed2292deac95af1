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

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestPrepareDamagedBundle flips a byte in the last part, which is read once all others are staged: none of them is put in place,
// and nothing of them stays.
func TestPrepareDamagedBundle(t *testing.T) {
	h, root := newBareHost(t)
	path := writeBundle(t, "v1.37.2")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 { // the end of the tar
		end--
	}
	data[end-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := h.prepare(t, &Prepare{Bundle: openBundle(t, path)})
	if err == nil || !strings.Contains(err.Error(), "kubelet.service") {
		t.Errorf("the error does not name the damaged part: %v\n%s", err, said)
	}
	for _, dir := range []string{programDir, cniDir, unitDir} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "other" {
				t.Errorf("%s/%s is there", dir, e.Name())
			}
		}
	}
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
}

func TestPrepareRelabels(t *testing.T) {
	h, _ := newBareHost(t)
	h.Has.SELinux = true
	synced := map[string]bool{}
	h.Before = func(ctx context.Context, order string) error {
		synced[order] = true
		return h.before(ctx, order)
	}
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	for _, path := range []string{"/usr/local/bin/kubelet", "/opt/cni/bin/bridge", "/etc/containerd/config.toml", sysctlPath, "/usr/local/lib/systemd/system/containerd.service"} {
		if !slices.Contains(h.Did("relabel"), path) {
			t.Errorf("%s keeps the context that it was made with: %v", path, h.Did("relabel"))
		}
		if !synced["sync "+path] {
			t.Errorf("%s may lose its context in a power cut", path)
		}
	}
}

// TestPrepareWithoutRoute refuses a host whose address nobody could tell, before anything is written.
func TestPrepareWithoutRoute(t *testing.T) {
	h, root := newBareHost(t)
	h.Has.Default = nil
	before := hostTree(t, root)
	said, err := h.prepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	if fact.Error(t, err, "[ERROR DefaultRoute]:"); t.Failed() {
		t.Log(said)
	}
	if diff := cmp.Diff(before, hostTree(t, root)); diff != "" {
		t.Errorf("something was written:\n%s", diff)
	}
}

// TestPrepareInterrupted: containerd restarts if any run has changed its settings since it started.
func TestPrepareInterrupted(t *testing.T) {
	h, _ := newBareHost(t)
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	h.mustPrepare(t, p)
	state := h.Has.Units["containerd.service"]
	state.ActiveSince = state.ActiveSince.AddDate(0, 0, -1)
	h.Has.Units["containerd.service"] = state
	h.Jobs = nil
	h.mustPrepare(t, p)
	if diff := cmp.Diff([]string{"reload", "restart containerd.service"}, h.Orders()); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

// TestPrepareSwapOfTheNextBoot: with no swap in use, as after `swapoff -a`, units that turn it on at boot are masked once.
func TestPrepareSwapOfTheNextBoot(t *testing.T) {
	for _, keep := range []bool{false, true} {
		h, _ := newBareHost(t)
		h.Has.Swap = nil
		for unit, state := range map[string]string{swapServices[0]: "enabled", swapServices[1]: "disabled", swapServices[2]: "generated"} {
			h.Has.Units[unit] = host.UnitState{LoadState: "loaded", UnitFileState: state, Fragment: "/usr/lib/systemd/system/" + unit}
		}
		want := []string{swapTarget, swapServices[0], swapServices[2]}
		if keep {
			want = nil
		}
		h.mustPrepare(t, &Prepare{KeepSwap: keep})
		var masked []string
		for _, order := range h.Orders() {
			if unit, found := strings.CutPrefix(order, "mask "); found {
				masked = append(masked, unit)
			}
		}
		if diff := cmp.Diff(want, masked); diff != "" {
			t.Errorf("--swap=keep %t: masked units (-want +got):\n%s", keep, diff)
		}
		record, err := readPrepared(h)
		if phasetest.Fatal(t, err); !slices.Equal(record.Masked, slices.Sorted(slices.Values(want))) {
			t.Errorf("--swap=keep %t: the record has %q", keep, record.Masked)
		}
		h.Jobs = nil
		h.mustPrepare(t, &Prepare{KeepSwap: keep})
		if slices.ContainsFunc(h.Orders(), func(order string) bool { return strings.HasPrefix(order, "mask ") }) {
			t.Errorf("masked again: %q", h.Orders())
		}
	}
}

// TestPrepareNodeWithSwap: a node whose kubelet is configured for swap keeps it.
func TestPrepareNodeWithSwap(t *testing.T) {
	for _, row := range []struct {
		setting bool
		flag    string
		fails   bool
		named   string // the reason why swap stays on
	}{
		{false, "", false, "failSwapOn in /var/lib/kubelet/config.yaml"},
		{true, "", true, ""},
		{true, "--fail-swap-on=false", false, "--fail-swap-on in /etc/default/kubelet"},
		{false, "--fail-swap-on", true, ""},
	} {
		h, root := newBareHost(t)
		fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
		fixture.Put(t, root, "/var/lib/kubelet/config.yaml", fmt.Sprintf("failSwapOn: %t\n", row.setting))
		fixture.Put(t, root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS="+row.flag+"\n")
		said := h.mustPrepare(t, &Prepare{})
		if kept := len(h.Has.Swap) > 0 && !slices.Contains(h.Orders(), "mask "+swapTarget); kept == row.fails {
			t.Errorf("%+v: swap is %q after %q", row, h.Has.Swap, h.Orders())
		}
		if !row.fails {
			fact.In(t, said, "/swapfile", row.named)
		}
	}
}

// TestUpWithSwap: a new host keeps its swap if the configuration of its node, or the administrator's file, lets the kubelet run
// with it. An earlier node's file doesn't count.
func TestUpWithSwap(t *testing.T) {
	flag := []config.Arg{{Name: "fail-swap-on", Value: "false"}}
	for name, row := range map[string]struct {
		change func(*config.Machine)
		flags  string
		kept   bool
		named  string // the reason
	}{
		"unknown":                  {},
		"failSwapOn: false":        {change: func(m *config.Machine) { m.Kubelet.FailSwapOn = new(false) }, kept: true, named: "failSwapOn in the KubeletConfiguration"},
		"failSwapOn: true":         {change: func(m *config.Machine) { m.Kubelet.FailSwapOn = new(true) }},
		"a flag":                   {change: func(m *config.Machine) { m.KubeletExtraArgs = flag }, kept: true, named: "--fail-swap-on in nodeRegistration.kubeletExtraArgs"},
		"the administrator's flag": {flags: "--fail-swap-on=false", kept: true, named: "--fail-swap-on in /etc/default/kubelet"},
		"which takes precedence":   {change: func(m *config.Machine) { m.Kubelet.FailSwapOn = new(false) }, flags: "--fail-swap-on"},
	} {
		h, root := newBareHost(t)
		fixture.Put(t, root, "/var/lib/kubelet/config.yaml", "failSwapOn: false\n")
		fixture.Put(t, root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS="+row.flags+"\n")
		var said bytes.Buffer
		env := h.env(&said)
		if row.change != nil {
			env.Machine = env.Machine.With(row.change)
		}
		if err := (&Prepare{}).runSwap(t.Context(), env); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if kept := len(h.Has.Swap) > 0 && len(h.Orders()) == 0; kept != row.kept {
			t.Errorf("%s: swap is %q after %q", name, h.Has.Swap, h.Orders())
		}
		if row.kept {
			fact.In(t, said.String(), "/swapfile", row.named)
		}
	}
}

// TestPrepareWithoutImages: if the images are left out, the sandbox image has to come from somewhere.
func TestPrepareWithoutImages(t *testing.T) {
	warning := phasetest.Line{"[WARNING]", config.SandboxImage()}
	for name, tt := range map[string]struct {
		mirrors []containerd.Mirror
		have    []host.Image
		want    bool
	}{
		"nothing":           {want: true},
		"another mirror":    {mirrors: []containerd.Mirror{{Registry: "docker.io", URL: "https://m.example"}}, want: true},
		"a mirror":          {mirrors: []containerd.Mirror{{Registry: "registry.k8s.io", URL: "https://m.example"}}},
		"the image is here": {have: []host.Image{{Names: []string{config.SandboxImage()}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newBareHost(t)
			h.Has.Images = tt.have
			var out bytes.Buffer
			env := h.env(&out)
			env.Machine.SkipPhases = []string{"images"}
			p := &Prepare{Bundle: testBundle(t, "v1.37.2"), Mirrors: tt.mirrors}
			if err := step.Run(t.Context(), env, p.Phases(), step.Options{Serial: true, Skip: env.Machine.SkipPhases}); err != nil {
				t.Fatal(err)
			}
			if got := warning.Count(t, out.String()); got > 1 || (got == 1) != tt.want {
				t.Errorf("warned %d times\n%s", got, out.String())
			}
		})
	}
}
