// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
)

// journal makes phases that record their run.
type journal struct {
	mu  sync.Mutex
	ran []string
}

func (j *journal) phase(name string, err error) phase {
	return phase{Name: name, Run: func(context.Context, *env) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ran = append(j.ran, name)
		return err
	}}
}

// env counts how often each phase is opened and ended.
type env struct {
	mu      *sync.Mutex
	opened  map[string]int
	skipped map[string]string
	spare   int // the spare's number, in the order in which they were made; 0 for none
}

func newEnv() *env { return &env{&sync.Mutex{}, map[string]int{}, map[string]string{}, 0} }

func (e *env) Start(phase string) (*env, func(error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened[phase]++
	return e, func(error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.opened[phase] += 100
	}
}

func (e *env) Skipped(phase, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skipped[phase] = reason
}

func (e *env) has(phase string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened[phase] > 0
}

type (
	phase   = Phase[*env]
	options = Options[*env]
)

func TestRunInOrder(t *testing.T) {
	broken := errors.New("out of paper")
	tests := []struct {
		name string
		fail error
		skip []string
		want []string
		err  []string
	}{
		{name: "all", want: []string{"a", "x", "y", "c"}},
		{name: "a phase left out", skip: []string{"a"}, want: []string{"x", "y", "c"}},
		{name: "a parent left out", skip: []string{"b"}, want: []string{"a", "c"}},
		{name: "a child left out", skip: []string{"b/x"}, want: []string{"a", "y", "c"}},
		{name: "an unknown one", skip: []string{"b/z", "d"},
			err: []string{"skip-phases", "phase b/z, d", "a, b, b/x, b/y, c"}},
		{name: "a failure ends the run and is named once", fail: broken, want: []string{"a", "x", "y"}, err: []string{"phase b/y", "of paper"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &journal{}
			workflow := []phase{
				j.phase("a", nil),
				{Name: "b", Children: []phase{j.phase("x", nil), j.phase("y", tt.fail)}},
				j.phase("c", nil),
			}
			err := Run(t.Context(), newEnv(), workflow, options{Skip: tt.skip})
			if fact.Error(t, err, tt.err...); strings.Count(message(err), "b/y") > 1 {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, j.ran); diff != "" {
				t.Errorf("ran (-want +got):\n%s", diff)
			}
			if tt.fail != nil && !errors.Is(err, tt.fail) {
				t.Errorf("%v does not wrap its cause", err)
			}
		})
	}
}

func TestRunSideBySideKeepsToNeeds(t *testing.T) {
	for range 50 {
		j := &journal{}
		late, leaf := j.phase("leaf", nil), j.phase("other-leaf", nil)
		late.Needs, leaf.Needs = []string{"certs/ca"}, []string{"certs/ca"}
		workflow := []phase{{Name: "certs", SideBySide: true, Children: []phase{j.phase("ca", nil), late, leaf}}}
		if err := Run(t.Context(), newEnv(), workflow, options{}); err != nil {
			t.Fatal(err)
		}
		if len(j.ran) != 3 || j.ran[0] != "ca" {
			t.Fatalf("ran %v, and ca must be the first", j.ran)
		}
	}
}

func TestRunSideBySideEndsWhenTheFirstFails(t *testing.T) {
	j := &journal{}
	leaf := j.phase("leaf", nil)
	leaf.Needs = []string{"certs/ca"}
	workflow := []phase{{Name: "certs", SideBySide: true, Children: []phase{j.phase("ca", errors.New("no key")), leaf}}}
	err := Run(t.Context(), newEnv(), workflow, options{})
	if got := message(err); got != "phase certs/ca: no key" {
		t.Errorf("error %q", got)
	}
	if diff := cmp.Diff([]string{"ca"}, j.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

// TestRunKeepsToNeeds runs a workflow like init's many times, with phases that take random times: no phase may begin before the
// phases it needs have ended.
func TestRunKeepsToNeeds(t *testing.T) {
	var workflow []phase
	var mu sync.Mutex
	ended := map[string]bool{}
	watched := func(path string, needs ...string) phase {
		return phase{Name: path[strings.LastIndex(path, "/")+1:], Run: func(context.Context, *env) error {
			mu.Lock()
			for _, n := range needs {
				if !ended[n] {
					t.Errorf("%s began before %s had ended", path, n)
				}
			}
			mu.Unlock()
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			ended[path] = true
			return nil
		}}
	}
	workflow = []phase{
		watched("preflight"),
		{Name: "certs", SideBySide: true, Children: []phase{
			watched("certs/ca", "preflight"),
			watched("certs/apiserver", "certs/ca").Needing("certs/ca"),
			watched("certs/etcd", "preflight"),
		}},
		watched("kubeconfig", "certs/ca").Needing("certs/ca"),
		watched("etcd", "certs/etcd").Needing("certs/etcd"),
		watched("control-plane", "certs/ca", "certs/apiserver", "certs/etcd", "kubeconfig").Needing("certs", "kubeconfig"),
		watched("kubelet-start", "kubeconfig", "etcd").Needing("kubeconfig", "etcd"),
		watched("wait", "control-plane", "kubelet-start").Needing("control-plane", "kubelet-start"),
		watched("last", "wait"),
	}
	for range 100 {
		clear(ended)
		if err := Run(t.Context(), newEnv(), workflow, options{}); err != nil {
			t.Fatal(err)
		}
		if len(ended) != 10 {
			t.Fatalf("%d phases ran", len(ended))
		}
	}
}

// TestRunSerialKeepsTheOrder: this makes a plan the same every time.
func TestRunSerialKeepsTheOrder(t *testing.T) {
	j := &journal{}
	workflow := []phase{j.phase("a", nil), {Name: "b", SideBySide: true, Children: []phase{j.phase("x", nil), j.phase("y", nil)}},
		j.phase("c", nil).Needing("a"), j.phase("d", nil).Needing("b/y")}
	if err := Run(t.Context(), newEnv(), workflow, options{Serial: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "x", "y", "c", "d"}, j.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

// TestRunNeedsWhatStandsLater: in a serial run, too, a later phase comes first if it's needed.
func TestRunNeedsWhatStandsLater(t *testing.T) {
	j := &journal{}
	workflow := []phase{{Name: "a", Children: []phase{j.phase("x", nil), j.phase("y", nil).Needing("b")}},
		j.phase("b", nil).Needing("a/x"), j.phase("c", nil).Needing("a")}
	for _, serial := range []bool{true, false} {
		j.ran = nil
		if err := Run(t.Context(), newEnv(), workflow, options{Serial: serial}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"x", "b", "y", "c"}, j.ran); diff != "" {
			t.Errorf("serial %v: ran (-want +got):\n%s", serial, diff)
		}
	}
}

// TestEachPhaseIsEndedOnce fails several children at once.
func TestEachPhaseIsEndedOnce(t *testing.T) {
	together := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(2)
	fails := func(context.Context, *env) error {
		waiting.Done()
		<-together
		return errors.New("no")
	}
	go func() { waiting.Wait(); close(together) }()
	spy := newEnv()
	workflow := []phase{{Name: "certs", SideBySide: true, Children: []phase{{Name: "a", Run: fails}, {Name: "b", Run: fails}}}}
	if err := Run(t.Context(), spy, workflow, options{}); err == nil {
		t.Error("no error")
	}
	want := map[string]int{"certs": 101, "certs/a": 101, "certs/b": 101}
	if diff := cmp.Diff(want, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}
}

// TestGroupsAreEndedWhereAnotherFails: the groups' other phases don't begin.
func TestGroupsAreEndedWhereAnotherFails(t *testing.T) {
	began, failed := make(chan struct{}), make(chan struct{})
	spy := newEnv()
	workflow := []phase{{Name: "all", SideBySide: true, Children: []phase{
		{Name: "a", Run: func(context.Context, *env) error { <-began; close(failed); return errors.New("no") }},
		{Name: "b", Children: []phase{
			{Name: "x", Run: func(ctx context.Context, _ *env) error { close(began); <-failed; <-ctx.Done(); return nil }},
			{Name: "y", Run: func(context.Context, *env) error { return nil }},
		}},
	}}}
	if err := Run(t.Context(), spy, workflow, options{}); err == nil {
		t.Error("no error")
	}
	want := map[string]int{"all": 101, "all/a": 101, "all/b": 101, "all/b/x": 101}
	if diff := cmp.Diff(want, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}
}

// TestSparesAreMadeBeforeTheirPhasesTurn: the first spare goes to the phase with the most others waiting. A phase that needs none
// gets none.
func TestSparesAreMadeBeforeTheirPhasesTurn(t *testing.T) {
	var mu sync.Mutex
	made, got := 0, map[string]int{}
	newSpare := func(*env) (func(*env) *env, error) {
		mu.Lock()
		defer mu.Unlock()
		made++
		number := made
		return func(e *env) *env { return &env{e.mu, e.opened, e.skipped, number} }, nil
	}
	supplied := func(name string, needs bool) phase {
		return phase{
			Name:       name,
			NeedsSpare: func(*env) bool { return needs },
			Run: func(_ context.Context, e *env) error {
				mu.Lock()
				defer mu.Unlock()
				if e.spare > 0 {
					got[name] = e.spare
				}
				return nil
			},
		}
	}
	checks := phase{Name: "checks", Run: func(context.Context, *env) error {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			enough := made == 3
			mu.Unlock()
			if enough || time.Now().After(deadline) {
				return nil
			}
		}
	}}
	workflow := []phase{checks, {Name: "certs", SideBySide: true, Children: []phase{
		supplied("last", true), supplied("kept", false), supplied("leaf", true).Needing("certs/ca"), supplied("ca", true),
	}}, (&journal{}).phase("end", nil).Needing("certs/leaf")}
	if err := Run(t.Context(), newEnv(), workflow, options{NewSpare: newSpare, AtOnce: 2}); err != nil {
		t.Fatal(err)
	}
	if _, kept := got["kept"]; kept || len(got) != 3 || made != 3 || got["ca"]+got["leaf"]+got["last"] != 6 {
		t.Errorf("%d spares, and %v got them", made, got)
	}

	if diff := cmp.Diff([]string{"certs/ca", "certs/leaf", "certs/last"}, handed(t, workflow)); diff != "" {
		t.Errorf("handed (-want +got):\n%s", diff)
	}

	made, got = 0, map[string]int{}
	if err := Run(t.Context(), newEnv(), workflow[1:], options{Serial: true, NewSpare: newSpare, AtOnce: 2}); err != nil || made > 0 {
		t.Errorf("one after another, each makes its own: %v, %d spares", err, made)
	}
}

// handed lists the phases that would get the first spare, the second, and so on, if all were made before anything else.
func handed(t *testing.T, workflow []phase) []string {
	t.Helper()
	s := &schedule[*env]{env: newEnv(), groups: map[string]*group{}}
	s.flatten(workflow, "", order{}, false, nil)
	s.resolve()
	s.weigh()
	s.orderSpares()
	var paths []string
	for range s.spares {
		if err := s.deliverSpare(madeSpare[*env]{}); err != nil {
			t.Fatal(err)
		}
		for _, st := range s.steps {
			if st.supplied && !slices.Contains(paths, st.path) {
				paths = append(paths, st.path)
			}
		}
	}
	return paths
}

// TestNoPhaseWaitsForASpareInVain once a check has failed. Phases in progress end. The maker's error is reported like a phase's.
func TestNoPhaseWaitsForASpareInVain(t *testing.T) {
	began, forever := make(chan struct{}), make(chan struct{})
	defer close(forever)
	spy := newEnv()
	ca := phase{
		Name:       "ca",
		NeedsSpare: func(*env) bool { return true },
		Run:        func(context.Context, *env) error { t.Error("it ran"); return nil },
	}
	workflow := []phase{{Name: "all", SideBySide: true, Children: []phase{
		{Name: "check", Run: func(context.Context, *env) error {
			<-began
			for !spy.has("all/ca") {
				time.Sleep(time.Millisecond)
			}
			return errors.New("no")
		}},
		ca,
	}}}
	err := Run(t.Context(), spy, workflow, options{AtOnce: 2, NewSpare: func(*env) (func(*env) *env, error) { close(began); <-forever; return nil, nil }})
	if got := message(err); got != "phase all/check: no" {
		t.Errorf("error %q", got)
	}
	if diff := cmp.Diff(map[string]int{"all": 101, "all/check": 101, "all/ca": 101}, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}

	err = Run(t.Context(), spy, []phase{ca}, options{AtOnce: 2, NewSpare: func(*env) (func(*env) *env, error) { return nil, errors.New("unknown algorithm") }})
	if got := message(err); got != "phase ca: unknown algorithm" {
		t.Errorf("error %q", got)
	}
}

func TestSkippedPhasesSayWhy(t *testing.T) {
	e := newEnv()
	workflow := []phase{{Name: "etcd", Skip: func(*env) string { return "etcd is external" }}, (&journal{}).phase("addon", nil)}
	if err := Run(t.Context(), e, workflow, options{Skip: []string{"addon"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"etcd": "etcd is external", "addon": "--skip-phases"}, e.skipped); diff != "" || len(e.opened) > 0 {
		t.Errorf("skipped (-want +got):\n%s\nopened %v", diff, e.opened)
	}
}

// TestPhasesThatWaitForEachOther are a mistake in a workflow; the error names them.
func TestPhasesThatWaitForEachOther(t *testing.T) {
	j := &journal{}
	err := Run(t.Context(), newEnv(), []phase{j.phase("a", nil).Needing("b"), j.phase("b", nil).Needing("a")}, options{})
	if fact.Error(t, err, "a, b", "each other"); len(j.ran) > 0 {
		t.Errorf("ran %v", j.ran)
	}
}

func TestCancelledRunStartsNothing(t *testing.T) {
	j := &journal{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, newEnv(), []phase{j.phase("a", nil)}, options{})
	if !errors.Is(err, context.Canceled) || len(j.ran) > 0 {
		t.Errorf("error %v, ran %v", err, j.ran)
	}
}

// TestPhasesThatHadNotBegunAreNotToBlame: an interrupted run fails with the running phase's error. The other phase begins before or
// after the interruption, depending on the goroutines' order, and ends first.
func TestPhasesThatHadNotBegunAreNotToBlame(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			wait := phase{Name: "wait", Run: func(context.Context, *env) error {
				cancel()
				time.Sleep(time.Second)
				return errors.New("the kubelet is not healthy")
			}}
			workflow := []phase{{Name: "side", SideBySide: true, Children: []phase{(&journal{}).phase("other", nil), wait}}}
			err := Run(ctx, newEnv(), workflow, options{})
			if got := message(err); got != "phase side/wait: the kubelet is not healthy" {
				t.Fatalf("error %q", got)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
