// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestUnseen: a diagnosis that couldn't look everywhere is an error, and keeps the causes it found. A host without systemd is a
// finding.
func TestUnseen(t *testing.T) {
	broken := errors.New("EIO")
	for name, tt := range map[string]struct {
		fails map[string]error
		ended bool // before it looked
		crash bool
		found string
		want  string // facts of the error
	}{
		"the journal":                    {fails: map[string]error{"Journal": broken}, want: "EIO | `journalctl -u kubelet`"},
		"systemd":                        {fails: map[string]error{"Unit": broken}, want: "EIO | `systemctl status kubelet`"},
		"the journal, but not a cause":   {fails: map[string]error{"Journal": broken}, crash: true, found: "bad-flag", want: "EIO"},
		"there is no systemd":            {fails: map[string]error{"Unit": host.ErrNoSystemd, "Journal": broken}, found: "kubelet-unit"},
		"somebody has ended it":          {ended: true, want: "context canceled"},
		"somebody has ended it, a crash": {ended: true, crash: true, want: "context canceled"},
		"the runtime doesn't answer":     {fails: map[string]error{"ContainerStates": broken, "RuntimeInfo": broken}, found: "runtime-down"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := healthy(t)
			for call, err := range tt.fails {
				h.Fail[call] = err
			}
			if tt.crash {
				h.crashed("kube-apiserver", "Error: unknown flag: --nonsense")
			}
			if tt.ended {
				cancel()
				h.On.ContainerStates = func(ctx context.Context, _, _ string) ([]host.ContainerState, error) { return nil, ctx.Err() }
			}
			found, err := Run(ctx, h, h.target(false))
			if tt.found == "" && len(found) > 0 || tt.found != "" && (len(found) != 1 || found[0].Name != tt.found) {
				t.Errorf("found %v, want %q", found, tt.found)
			}
			if (err == nil) != (tt.want == "") {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if err != nil {
				fact.In(t, fixture.Told(err), fact.Of(tt.want)...)
			}
		})
	}
}

// TestNotRunningNeedsTheRuntime: if the runtime didn't list its containers, nobody knows which Pods have none.
func TestNotRunningNeedsTheRuntime(t *testing.T) {
	h := healthy(t)
	h.Fail["ContainerStates"] = context.DeadlineExceeded
	o := observe(t.Context(), h, h.target(true), nil)
	o.read()
	if found := notRunning(o); len(o.pods) == 0 || len(found) > 0 {
		t.Errorf("%d Pods, found %v", len(o.pods), found)
	}
}

// TestLateExplanationCountsForNothing: when a wait's time is up, a last look that itself runs out of time finds nothing.
func TestLateExplanationCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := healthy(t)
		h.On.RuntimeInfo = func(ctx context.Context, _ string) (host.RuntimeInfo, error) {
			<-ctx.Done()
			return host.RuntimeInfo{}, ctx.Err()
		}
		h.crashed("kube-apiserver", "Error: unknown flag: --nonsense")
		err := Guard(t.Context(), h, Wait{Limit: time.Minute, Failure: "it did not start"}, h.target(false), func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("out of paper")
		})
		var known *Error
		if errors.As(err, &known) {
			t.Errorf("found %v", known.Findings)
		}
		fact.Error(t, err, "paper")
	})
}
