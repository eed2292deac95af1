// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestComesFurther: the next holder of the node's lock acts on how far the change has come by then.
func TestComesFurther(t *testing.T) {
	t.Run("it's being stored", func(t *testing.T) {
		s, _, _ := killed(t, time.Minute)
		watch := Watch()
		phasetest.Fatal(t, setStoring(t.Context(), s.Env, unfinished(t, s)))
		s.Play(t, watch...)
		isAfter(t, s)
	})
	t.Run("it counts", func(t *testing.T) {
		s, _, _ := killed(t, time.Minute)
		first, second := finish(false), Watch()
		_, err := Answer(s.Env, trial.Confirmed, false)
		phasetest.Fatal(t, err)
		s.Play(t, first...)
		s.Play(t, second...)
		isAfter(t, s)
	})
	t.Run("it was put back before it was confirmed", func(t *testing.T) {
		s, were, had := killed(t, time.Minute)
		confirmed, err := Answer(s.Env, trial.Confirmed, false)
		phasetest.Fatal(t, err)
		record := unfinished(t, s)
		s.Play(t, step.Phase{Name: "back", Run: func(ctx context.Context, env *step.Env) error { return rollBackUnfinished(ctx, env, record, true) }})
		fact.Error(t, step.Run(t.Context(), s.Env, confirmed, step.Options{}), "put back")
		isBefore(t, s, were, had)
	})
	t.Run("it waits", func(t *testing.T) {
		s, _, _ := killed(t, time.Minute)
		fact.Error(t, step.Run(t.Context(), s.Env, finish(false), step.Options{}), "on trial")
		if got := state(t, s); got != trial.OnTrial || len(guarded(t, s)) != 2 {
			t.Errorf("the change is %q, and %q watch it", got, guarded(t, s))
		}
	})
}

// TestWatchNeverSucceeds: the unit that tries again and again to put the node back doesn't keep the others from going on.
func TestWatchNeverSucceeds(t *testing.T) {
	s, _, _ := killed(t, 0)
	renewed := func() time.Time {
		lease := phasetest.TurnLease()
		_, err := s.API.Get(t.Context(), lease)
		phasetest.Fatal(t, err)
		return lease.Spec.RenewTime.Time
	}
	last, failed := renewed(), errors.New("unit 4711")
	s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
		host.RestartUnit: func(context.Context, string) error { return failed },
	}
	for range 2 {
		s.FakeHost.Has.Time = s.FakeHost.Now().Add(10 * time.Minute)
		fact.Error(t, step.Run(t.Context(), s.Env, Watch(), step.Options{}), failed.Error())
		if got := state(t, s); got != trial.Reverting || s.Holder(t) != "cp-1" || !renewed().Equal(last) {
			t.Errorf("the change is %q; %q holds the Lease, renewed at %s after %s", got, s.Holder(t), renewed(), last)
		}
	}
	for range 2 { // once others may go on, and after that
		s.FakeHost.Has.Time = s.FakeHost.Now().Add(time.Hour)
		fact.Error(t, step.Run(t.Context(), s.Env, Watch(), step.Options{}), failed.Error())
		if got := state(t, s); got != trial.Reverting || s.Holder(t) != "" {
			t.Errorf("the change is %q, and %q holds the Lease", got, s.Holder(t))
		}
	}
}

// TestBeginBesideUnfinished: no change begins beside another, whose way back stays.
func TestBeginBesideUnfinished(t *testing.T) {
	s, _, _ := killed(t, time.Minute)
	_, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", []trial.Write{{Path: settings}}, trial.Record{})
	fact.Error(t, err, "unfinished", string(trial.OnTrial))
	if got := unfinished(t, s); !got.AwaitsConfirmation() || len(guarded(t, s)) != 2 {
		t.Errorf("%+v, and %q watch it", got, guarded(t, s))
	}
}

// TestUnguarded: without the units that put the node back, no change is on trial. The next run needs nothing but systemd.
func TestUnguarded(t *testing.T) {
	s := live(t)
	before, refused := files(t, s), errors.New("systemd refuses")
	for _, order := range []host.UnitOrder{host.EnableUnit, host.StartUnit} {
		s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
			order: func(_ context.Context, unit string) error {
				if strings.HasPrefix(unit, "slipway-") {
					return refused
				}
				return nil
			},
		}
		if err := run(t, s); !errors.Is(err, refused) || state(t, s) != "" || s.Holder(t) != "" {
			t.Errorf("%v; the change is %q, and %q holds the Lease", err, state(t, s), s.Holder(t))
		}
	}
	s.FakeHost.On.Orders = nil
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
	s.Play(t, RestoreFiles()...) // a reboot
	s.Play(t, Watch()...)
	if diff := cmp.Diff(before, files(t, s)); diff != "" || len(guarded(t, s)) > 0 || state(t, s) != "" {
		t.Errorf("the change is %q, and there are still %q; files:\n%s", state(t, s), guarded(t, s), diff)
	}
	phasetest.Fatal(t, run(t, s))
	isAfter(t, s)
}

// found are the copies of files that somebody else has written since a change.
func found(t *testing.T, s *phasetest.Stage) (names []string) {
	t.Helper()
	last, err := trial.Last(s.Env)
	phasetest.Fatal(t, err)
	paths, err := filepath.Glob(s.Root + last.Dir() + "/found-*")
	phasetest.Fatal(t, err)
	for _, path := range paths {
		names = append(names, strings.TrimPrefix(path, s.Root))
	}
	return names
}

// TestEditedOnTrial: what somebody else has written on trial isn't lost when the node goes back, and stays if the former file could do
// harm. What the run has written goes without a copy.
func TestEditedOnTrial(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		s, were, had := killed(t, time.Nanosecond)
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		if got := found(t, s); len(got) > 0 {
			t.Errorf("kept copies of the run's own files: %q", got)
		}
	})
	for _, reboot := range []bool{false, true} {
		s, were, had := killed(t, time.Nanosecond)
		s.EditPod(t, manifests.APIServerName, "cpu: 250m", "cpu: 300m")
		s.Append(t, settings, "podPidsLimit: 77\n")
		edited := []string{s.Get(t, apiServer), s.Get(t, settings)}
		if reboot {
			s.Play(t, RestoreFiles()...)
		}
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		var copies []string
		for _, path := range found(t, s) {
			fact.In(t, s.Said.String(), path)
			copies = append(copies, s.Get(t, path))
		}
		slices.Sort(edited)
		slices.Sort(copies)
		if diff := cmp.Diff(edited, copies); diff != "" {
			t.Errorf("copies (reboot: %t):\n%s", reboot, diff)
		}
	}
	t.Run("what stays", func(t *testing.T) {
		s, were, had := killed(t, time.Nanosecond)
		s.EditPod(t, manifests.APIServerName, "kube-apiserver:v1.37.2", "kube-apiserver:v1.38.0")
		phasetest.Fatal(t, pki.Renewal{Store: s.PKI(), Name: "apiserver"}.Renew("apiserver"))
		for _, path := range []string{apiServer, serverCert, "/etc/kubernetes/pki/apiserver.key"} {
			were[path] = s.Get(t, path)
		}
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		fact.In(t, s.Said.String(), apiServer, "kube-apiserver:v1.38.0", serverCert)
	})
}

// editing is an API whose Lease is free only after somebody has edited a static Pod.
type editing struct {
	cluster.Cluster
	edit func()
}

func (e *editing) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	if _, is := obj.(*coordinationv1.Lease); is && e.edit != nil {
		e.edit()
		e.edit = nil
	}
	return e.Cluster.Update(ctx, obj, change)
}

// TestEditedMeanwhile: an edit that's made while a run waits for its turn isn't overwritten.
func TestEditedMeanwhile(t *testing.T) {
	for name, command := range map[string]func(*testing.T, *phasetest.Stage) error{"reconfigure": run, "reconfigure node": toStored} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			if name != "reconfigure" {
				changeElsewhere(t, s)
			}
			s.Cluster = &editing{s.API, func() { s.EditPod(t, manifests.APIServerName, "cpu: 250m", "cpu: 300m") }}
			fact.Error(t, command(t, s), apiServer)
			fact.In(t, s.Get(t, apiServer), "cpu: 300m")
			fact.NotIn(t, s.Get(t, apiServer), "--profiling=false")
			if state(t, s) != "" || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
				t.Errorf("the change is %q, %q holds the Lease, and there are still %q", state(t, s), s.Holder(t), guarded(t, s))
			}
		})
	}
}
