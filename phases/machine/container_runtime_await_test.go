// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestRuntimeMayStartSlowly: it has minutes, and a minute for a single answer, unless its unit has ended.
func TestRuntimeMayStartSlowly(t *testing.T) {
	for name, tt := range map[string]struct {
		unit    host.UnitState
		answers time.Duration
		fails   bool
		takes   time.Duration // about
	}{
		"slow":      {host.UnitState{ActiveState: "active", SubState: "running"}, 3 * time.Minute, false, 3 * time.Minute},
		"starting":  {host.UnitState{ActiveState: "activating", SubState: "start"}, 3 * time.Minute, false, 3 * time.Minute},
		"too slow":  {host.UnitState{ActiveState: "active", SubState: "running"}, time.Hour, true, runtimeStart},
		"crashes":   {host.UnitState{ActiveState: "activating", SubState: "auto-restart"}, time.Hour, true, 0},
		"is failed": {host.UnitState{ActiveState: "failed", SubState: "failed"}, time.Hour, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newBareHost(t)
			h.Has.Units[containerd.Unit] = tt.unit
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				h.On.RuntimeInfo = func(ctx context.Context, _ string) (host.RuntimeInfo, error) {
					select {
					case <-ctx.Done():
						return host.RuntimeInfo{}, errors.New("nothing listens")
					case <-time.After(tt.answers):
						return host.RuntimeInfo{Ready: true}, nil
					}
				}
				err := awaitRuntime(t.Context(), &step.Env{Host: h}, hostRuntime{unit: containerd.Unit, socket: containerd.Socket})
				if took := time.Since(began); (err != nil) != tt.fails || took < tt.takes || took > tt.takes+10*time.Second {
					t.Errorf("%v after %s", err, took)
				}
				if tt.fails {
					fact.In(t, fixture.Told(err), containerd.Socket, "nothing listens", "`journalctl -u containerd.service`")
				}
			})
		})
	}
}

// TestImportedImagesAreShown: containerd may take a moment to list imported images, but without them the host isn't prepared.
func TestImportedImagesAreShown(t *testing.T) {
	for name, shown := range map[string]time.Duration{"at once": 0, "late": 10 * time.Second, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			h, _ := newBareHost(t)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				h.On.RuntimeInfo = func(context.Context, string) (host.RuntimeInfo, error) {
					if time.Since(began) >= shown {
						h.Has.Images = []host.Image{{Names: []string{"a:1"}}, {Names: []string{"b:1"}}}
					}
					return host.RuntimeInfo{}, nil
				}
				err := awaitImported(t.Context(), &step.Env{Host: h}, hostRuntime{socket: containerd.Socket}, []string{"a:1", "b:1"})
				if (err != nil) != (name == "never") {
					t.Error(err)
				}
				if err != nil {
					fact.In(t, fixture.Told(err), "b:1", containerd.Socket, "`ctr version`", "PATH")
				}
			})
		})
	}
}
