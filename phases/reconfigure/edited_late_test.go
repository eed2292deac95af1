// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestEditedBeforeLaterSwap: an edit from the trial of the API server stays, and the change goes back.
func TestEditedBeforeLaterSwap(t *testing.T) {
	const scheduler = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	for path, edit := range map[string]func(*testing.T, *phasetest.Stage){
		scheduler: func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, manifests.SchedulerName, "cpu: 100m", "cpu: 300m")
		},
		settings: func(t *testing.T, s *phasetest.Stage) { s.Append(t, settings, "podPidsLimit: 77\n") },
	} {
		t.Run(path, func(t *testing.T) {
			s := live(t)
			r := changeTo(t, s, strings.Replace(everything, "apiServer:", "scheduler: {extraArgs: [{name: v, value: \"3\"}]}\napiServer:", 1))
			edited := ""
			s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				if edited == "" {
					edit(t, s)
					edited = s.Get(t, path)
				}
				s.FakeHost.Runs(time.Now().Add(2*time.Hour), id)
				return nil
			}
			err := step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
			fact.Error(t, err, path)
			fact.In(t, fault.Remedy(err), "same command")
			if copies := found(t, s); len(copies) > 0 || s.Get(t, path) != edited || state(t, s) != trial.Reverted {
				t.Errorf("the change is %q, the copies are %q, the file:\n%s", state(t, s), copies, s.Get(t, path))
			}
			if strings.Contains(s.Get(t, apiServer), "--profiling=false") {
				t.Error("the API server still has the change")
			}
		})
	}
}
