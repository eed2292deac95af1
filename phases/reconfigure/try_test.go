// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// configuration is what the cluster has stored.
func configuration(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	return map[string]string{
		"kubeadm-config": stored(t, s, "kubeadm-config", "ClusterConfiguration"),
		"kubelet-config": stored(t, s, "kubelet-config", "kubelet"),
	}
}

// isBefore checks that nothing of the change is left.
func isBefore(t *testing.T, s *phasetest.Stage, were, had map[string]string) {
	t.Helper()
	if diff := cmp.Diff(were, files(t, s)) + cmp.Diff(had, configuration(t, s)); diff != "" {
		t.Errorf("files and configuration:\n%s", diff)
	}
	if got := state(t, s); got != trial.Reverted || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("the change is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
	}
}

// isAfter checks that the change counts.
func isAfter(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	fact.In(t, s.Get(t, apiServer), "--profiling=false")
	fact.In(t, stored(t, s, "kubeadm-config", "ClusterConfiguration"), "new.example.org", "profiling")
	fact.In(t, stored(t, s, "kubelet-config", "kubelet"), "maxPods: 55")
	if got := state(t, s); got != trial.Completed || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("the change is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
	}
}

// try makes the change, and answers once it waits.
func try(t *testing.T, s *phasetest.Stage, limit time.Duration, answers ...trial.Answer) error {
	t.Helper()
	had := configuration(t, s)
	r := change(t, s)
	r.Try, r.Wait = limit, func(wait func() error) error {
		fact.In(t, s.Get(t, settings), "maxPods: 55")
		if diff := cmp.Diff(had, configuration(t, s)); diff != "" {
			t.Errorf("stored before it's confirmed:\n%s", diff)
		}
		for _, a := range answers {
			if _, err := Answer(s.Env, a, false); err != nil {
				return err
			}
		}
		return wait()
	}
	return step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
}

// TestConfirmed: a change counts once it's confirmed, and can't be confirmed again.
func TestConfirmed(t *testing.T) {
	s := live(t)
	_, err := Answer(s.Env, trial.Confirmed, false)
	fact.Error(t, err, "no change")
	phasetest.Fatal(t, try(t, s, time.Minute, trial.Confirmed))
	isAfter(t, s)
	if workflow, err := Answer(s.Env, trial.Confirmed, true); workflow != nil || err != nil {
		t.Errorf("the run that has confirmed it: %v, %v", workflow, err)
	}
	_, err = Answer(s.Env, trial.Confirmed, false)
	fact.Error(t, err, "completed")
}

// TestUnconfirmed: a change goes back if nobody confirms it in time, or if somebody refuses it. A later confirmation says so.
func TestUnconfirmed(t *testing.T) {
	for name, test := range map[string]struct {
		limit   time.Duration
		answers []trial.Answer
		cause   string
	}{
		"late":    {limit: time.Nanosecond, cause: "confirmed"},
		"refused": {limit: time.Minute, answers: []trial.Answer{trial.Refused}, cause: "--revert"},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			were, had := files(t, s), configuration(t, s)
			err := try(t, s, test.limit, test.answers...)
			if back := (*node.RolledBackError)(nil); !errors.As(err, &back) {
				t.Errorf("%v", err)
			}
			fact.Error(t, err, test.cause)
			isBefore(t, s, were, had)
			_, err = Answer(s.Env, trial.Confirmed, false)
			fact.Error(t, err, "put back", test.cause)
		})
	}
}

// killed is a node whose run died while it was waiting for the confirmation.
func killed(t *testing.T, left time.Duration) (s *phasetest.Stage, were, had map[string]string) {
	t.Helper()
	return killedAt(t, left, everything)
}

func killedAt(t *testing.T, left time.Duration, documents string) (s *phasetest.Stage, were, had map[string]string) {
	t.Helper()
	return killedWith(t, left, documents, func(*phasetest.Stage) {})
}

// killedWith is killedAt on a node that others have edited.
func killedWith(t *testing.T, left time.Duration, documents string, edit func(*phasetest.Stage)) (s *phasetest.Stage, were, had map[string]string) {
	t.Helper()
	s = live(t)
	edit(s)
	were, had = files(t, s), configuration(t, s)
	r := changeTo(t, s, documents)
	r.Try = time.Minute
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	workflow := r.Phases()
	i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == "confirmation" })
	workflow[i].Run = func(_ context.Context, env *step.Env) error {
		phasetest.Fatal(t, r.record.WaitUntil(env, env.Host.Now().Add(left)))
		kill()
		return ctx.Err()
	}
	if err := step.Run(ctx, s.Env, workflow, step.Options{}); err == nil || state(t, s) != trial.OnTrial || len(guarded(t, s)) != 2 {
		t.Fatalf("%v; the change is %q, and %q watch it", err, state(t, s), guarded(t, s))
	}
	return s, were, had
}

func unfinished(t *testing.T, s *phasetest.Stage) *trial.Record {
	t.Helper()
	r, err := Unfinished(s.Env)
	phasetest.Fatal(t, err)
	if r == nil {
		t.Fatal("there is no unfinished change")
	}
	return r
}

// TestKilledOnTrial: the unit that watches waits in the run's place. It puts the node back, or stores what was confirmed; a reboot
// puts the files back unless the change was confirmed before.
func TestKilledOnTrial(t *testing.T) {
	for name, test := range map[string]struct {
		left              time.Duration
		confirmed, reboot bool
	}{
		"late":                 {},
		"confirmed":            {left: time.Minute, confirmed: true},
		"rebooted":             {left: time.Minute, reboot: true},
		"confirmed, rebooted":  {left: time.Minute, confirmed: true, reboot: true},
		"late, while rebooted": {reboot: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, were, had := killed(t, test.left)
			if test.confirmed {
				_, err := Answer(s.Env, trial.Confirmed, false)
				phasetest.Fatal(t, err)
			}
			if test.reboot {
				s.Play(t, RestoreFiles()...)
			}
			if test.reboot && !test.confirmed {
				if diff := cmp.Diff(were, files(t, s)); diff != "" {
					t.Errorf("files after the reboot:\n%s", diff)
				}
				_, err := Answer(s.Env, trial.Confirmed, false)
				fact.Error(t, err, "put back", "restarted")
			}
			s.Play(t, Watch()...)
			if test.confirmed {
				isAfter(t, s)
				return
			}
			isBefore(t, s, were, had)
		})
	}
}

// TestHangup: a change whose session is gone stays on trial, and can be confirmed.
func TestHangup(t *testing.T) {
	s := live(t)
	r := change(t, s)
	ctx, end := context.WithCancelCause(t.Context())
	r.Try, r.Wait = time.Minute, func(wait func() error) error {
		end(step.ErrHangup)
		return wait()
	}
	err := step.Run(ctx, s.Env, r.Phases(), step.Options{})
	fact.Error(t, err, "hangup", "slipway-watch.service")
	if !unfinished(t, s).AwaitsConfirmation() || len(guarded(t, s)) != 2 || s.Holder(t) == "" {
		t.Fatalf("%q is the change's state, %q watch it, %q holds the Lease", state(t, s), guarded(t, s), s.Holder(t))
	}
	_, err = Answer(s.Env, trial.Confirmed, false)
	phasetest.Fatal(t, err)
	s.Play(t, Watch()...)
	isAfter(t, s)
}

// TestBackWithoutAPI: while only the add-ons have to go back, and the API is away, nothing restarts again.
func TestBackWithoutAPI(t *testing.T) {
	s, were, had := killedAt(t, time.Nanosecond, ofProxy)
	away := true
	s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Away: func() bool { return away }}
	s.Config.Timeouts.KubernetesAPICall = time.Second
	for _, restarts := range []bool{true, false} {
		s.FakeHost.Jobs = nil
		err := step.Run(t.Context(), s.Env, Watch(), step.Options{})
		if got := s.FakeHost.Did("restart"); err == nil || state(t, s) != trial.Reverting || len(got) > 0 != restarts {
			t.Errorf("%v; the change is %q, and %q restarted", err, state(t, s), got)
		}
	}
	away = false
	s.Play(t, Watch()...)
	isBefore(t, s, were, had)
}

// TestTurnWithoutAPI: a killed run's turn ends once the API is back, because the unit that watches stays until then.
func TestTurnWithoutAPI(t *testing.T) {
	s := live(t)
	_, err := node.AcquireLease(t.Context(), s.Env, node.ForConfiguration)
	phasetest.Fatal(t, err)
	begin(t, s, settings)
	away := true
	s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Away: func() bool { return away }}
	for range 2 {
		err := step.Run(t.Context(), s.Env, Watch(), step.Options{})
		if err == nil || state(t, s) != trial.Reverted || len(guarded(t, s)) != 2 {
			t.Errorf("%v; the change is %q, and %q watch it", err, state(t, s), guarded(t, s))
		}
	}
	away = false
	s.Play(t, Watch()...)
	if s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("%q holds the Lease, and there are still %q", s.Holder(t), guarded(t, s))
	}
}

// TestLateConfirmation: nobody can confirm a change once its time is over, even before it's put back.
func TestLateConfirmation(t *testing.T) {
	s, _, _ := killed(t, -time.Minute)
	_, err := Answer(s.Env, trial.Confirmed, false)
	fact.Error(t, err, "put back", "confirmed")
}

// TestConfirmedTooLong: a configuration that somebody has stored meanwhile stays, and the node goes back.
func TestConfirmedTooLong(t *testing.T) {
	s, were, had := killed(t, time.Minute)
	edit(t, s, "kubelet-config", "kubelet", "podPidsLimit: 9\n")
	had["kubelet-config"] += "podPidsLimit: 9\n"
	workflow, err := Answer(s.Env, trial.Confirmed, false)
	phasetest.Fatal(t, err)
	fact.Error(t, step.Run(t.Context(), s.Env, workflow, step.Options{}), "put back", "kube-system/kubelet-config")
	isBefore(t, s, were, had)
	_, err = Answer(s.Env, trial.Confirmed, true)
	fact.Error(t, err, "put back", "kube-system/kubelet-config")
}

// edit appends to a text of a ConfigMap, as kubectl does.
func edit(t *testing.T, s *phasetest.Stage, name, key, more string) {
	t.Helper()
	cm := node.ConfigMap(name)
	_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
		cm.Data[key] += more
		return true, nil
	})
	phasetest.Fatal(t, err)
}
