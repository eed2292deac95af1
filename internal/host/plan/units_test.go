// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

// TestUnitPlanned: a unit exists if the plan writes its file.
func TestUnitPlanned(t *testing.T) {
	etc, lib := "/etc/systemd/system/x.service", "/usr/local/lib/systemd/system/x.service"
	missing := host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	for name, test := range map[string]struct {
		write, remove []string
		want          string // Fragment
	}{
		"none":        {},
		"one":         {write: []string{lib}, want: lib},
		"both":        {write: []string{lib, etc}, want: etc},
		"one removed": {write: []string{lib, etc}, remove: []string{etc}, want: lib},
		"all removed": {write: []string{lib}, remove: []string{lib}},
		"a drop-in":   {write: []string{"/etc/systemd/system/x.service.d/1.conf"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOverlay(stage.New(t), func(host.Action) {})
			for _, path := range test.write {
				if err := errors.Join(o.EnsureDir(filepath.Dir(path), 0o755), second(o.WriteFile(path, nil, 0o644))); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range test.remove {
				if err := o.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			want := missing
			if test.want != "" {
				want.LoadState, want.Fragment, want.Current = "loaded", test.want, true
			}
			if got, err := o.Unit(t.Context(), "x"); err != nil || !cmp.Equal(want, got) {
				t.Errorf("error %v, unit (-want +got):\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}

// TestUnitReplacedInPlan: a running program keeps its old version until a restart if the plan replaces its file.
func TestUnitReplacedInPlan(t *testing.T) {
	for name, test := range map[string]struct {
		active, written string
		want            bool
	}{
		"replaced":       {"active", "/bin/kubelet", true},
		"another":        {"active", "/bin/runc", false},
		"is not running": {"inactive", "/bin/kubelet", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := stage.New(t)
			h.Has.Units[host.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: test.active, Program: "/bin/kubelet"}
			o := NewOverlay(h, func(host.Action) {})
			if err := o.EnsureDir("/bin", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := o.WriteSet([]host.SetFile{fixture.Member(test.written, "new", 0o755)}, nil); err != nil {
				t.Fatal(err)
			}
			if state, err := o.Unit(t.Context(), host.KubeletUnit); state.Replaced != test.want || err != nil {
				t.Errorf("Replaced %v, error %v", state.Replaced, err)
			}
			if err := o.OrderUnit(t.Context(), host.RestartUnit, "kubelet"); err != nil {
				t.Fatal(err)
			}
			if state, _ := o.Unit(t.Context(), host.KubeletUnit); state.Replaced {
				t.Error("it is replaced after a restart")
			}
		})
	}
}
