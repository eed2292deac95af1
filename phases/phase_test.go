// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// journal makes phases that note that they ran.
type journal struct {
	mu  sync.Mutex
	ran []string
}

func (j *journal) phase(name string, err error) Phase {
	return Phase{Name: name, Run: func(context.Context, *Env) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ran = append(j.ran, name)
		return err
	}}
}

func testEnv(out *bytes.Buffer) *Env {
	return &Env{Config: &config.Node{}, UI: ui.NewLines("slipway", out, out)}
}

func TestRunInOrder(t *testing.T) {
	broken := errors.New("out of paper")
	tests := []struct {
		name string
		fail error
		skip []string
		want []string
		err  string
	}{
		{name: "all", want: []string{"a", "x", "y", "c"}},
		{name: "a phase left out", skip: []string{"a"}, want: []string{"x", "y", "c"}},
		{name: "a parent left out", skip: []string{"b"}, want: []string{"a", "c"}},
		{name: "a child left out", skip: []string{"b/x"}, want: []string{"a", "y", "c"}},
		{name: "an unknown one", skip: []string{"b/z", "d"},
			err: "skip-phases: no phase is called b/z, d; the phases are a, b, b/x, b/y, c"},
		{name: "a failure ends the run and is named once", fail: broken, want: []string{"a", "x", "y"}, err: "phase b/y: out of paper"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &journal{}
			workflow := []Phase{
				j.phase("a", nil),
				{Name: "b", Children: []Phase{j.phase("x", nil), j.phase("y", tt.fail)}},
				j.phase("c", nil),
			}
			err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{Skip: tt.skip})
			if got := message(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
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
		workflow := []Phase{{Name: "certs", SideBySide: true, Children: []Phase{j.phase("ca", nil), late, leaf}}}
		if err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{}); err != nil {
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
	workflow := []Phase{{Name: "certs", SideBySide: true, Children: []Phase{j.phase("ca", errors.New("no key")), leaf}}}
	err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{})
	if got := message(err); got != "phase certs/ca: no key" {
		t.Errorf("error %q", got)
	}
	if diff := cmp.Diff([]string{"ca"}, j.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

// TestRunKeepsToNeeds runs a workflow like init's many times, with phases that
// take random times: nothing may begin before what it needs has ended.
func TestRunKeepsToNeeds(t *testing.T) {
	var workflow []Phase
	var mu sync.Mutex
	ended := map[string]bool{}
	watched := func(path string, needs ...string) Phase {
		return Phase{Name: path[strings.LastIndex(path, "/")+1:], Run: func(context.Context, *Env) error {
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
	workflow = []Phase{
		watched("preflight"),
		{Name: "certs", SideBySide: true, Children: []Phase{
			watched("certs/ca", "preflight"),
			watched("certs/apiserver", "certs/ca").needing("certs/ca"),
			watched("certs/etcd", "preflight"),
		}},
		watched("kubeconfig", "certs/ca").needing("certs/ca"),
		watched("etcd", "certs/etcd").needing("certs/etcd"),
		watched("control-plane", "certs/ca", "certs/apiserver", "certs/etcd", "kubeconfig").needing("certs", "kubeconfig"),
		watched("kubelet-start", "kubeconfig", "etcd").needing("kubeconfig", "etcd"),
		watched("wait", "control-plane", "kubelet-start").needing("control-plane", "kubelet-start"),
		watched("last", "wait"),
	}
	for range 100 {
		clear(ended)
		if err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{}); err != nil {
			t.Fatal(err)
		}
		if len(ended) != 10 {
			t.Fatalf("%d phases ran", len(ended))
		}
	}
}

// TestRunSerialKeepsTheOrder is what makes a plan the same every time.
func TestRunSerialKeepsTheOrder(t *testing.T) {
	j := &journal{}
	workflow := []Phase{j.phase("a", nil), {Name: "b", SideBySide: true, Children: []Phase{j.phase("x", nil), j.phase("y", nil)}},
		j.phase("c", nil).needing("a"), j.phase("d", nil).needing("b/y")}
	if err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{Serial: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "x", "y", "c", "d"}, j.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

// TestRunNeedsWhatStandsLater in a serial run, too: what it needs comes first.
func TestRunNeedsWhatStandsLater(t *testing.T) {
	j := &journal{}
	workflow := []Phase{{Name: "a", Children: []Phase{j.phase("x", nil), j.phase("y", nil).needing("b")}},
		j.phase("b", nil).needing("a/x"), j.phase("c", nil).needing("a")}
	for _, serial := range []bool{true, false} {
		j.ran = nil
		if err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{Serial: serial}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"x", "b", "y", "c"}, j.ran); diff != "" {
			t.Errorf("serial %v: ran (-want +got):\n%s", serial, diff)
		}
	}
}

// TestNeedsExist makes sure that the workflows name phases that there are, and
// none waits for itself.
func TestNeedsExist(t *testing.T) {
	for name, workflow := range map[string][]Phase{"init": Init(), "join": Join(), "reset": Reset()} {
		known := Paths(workflow)
		var walk func(siblings []Phase)
		walk = func(siblings []Phase) {
			for _, p := range siblings {
				for _, need := range p.Needs {
					if !slices.Contains(known, need) {
						t.Errorf("%s: %s needs %s, which does not exist", name, p.Name, need)
					}
				}
				walk(p.Children)
			}
		}
		walk(workflow)
		for _, role := range []bool{false, true} {
			n := loadNode(t, "../testdata/golden/node/default/input.yaml")
			n.ControlPlane, n.Join, n.Reset = role, &config.Join{}, &config.Reset{}
			s := &schedule{groups: map[string]*group{}}
			s.flatten(n, workflow, "", order{}, false, nil)
			s.resolve()
			for range s.steps { // each round ends those that can begin
				for _, st := range s.steps {
					if !slices.ContainsFunc(st.needs, func(i int) bool { return s.steps[i].state != done }) {
						st.state = done
					}
				}
			}
			for _, st := range s.steps {
				if st.state != done {
					t.Errorf("%s, control plane %v: %s can never begin", name, role, st.path)
				}
			}
		}
	}
}

// spyUI counts how often each phase is opened and ended.
type spyUI struct {
	ui.UI
	mu     *sync.Mutex
	opened map[string]int
}

func (s spyUI) Start(phase string) (ui.UI, func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[phase]++
	return s, func(error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened[phase] += 100
	}
}

func (s spyUI) has(phase string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened[phase] > 0
}

// TestEachPhaseIsEndedOnce also where several children fail at once.
func TestEachPhaseIsEndedOnce(t *testing.T) {
	together := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(2)
	fails := func(context.Context, *Env) error {
		waiting.Done()
		<-together
		return errors.New("no")
	}
	go func() { waiting.Wait(); close(together) }()
	spy := spyUI{quietUI(), &sync.Mutex{}, map[string]int{}}
	workflow := []Phase{{Name: "certs", SideBySide: true, Children: []Phase{{Name: "a", Run: fails}, {Name: "b", Run: fails}}}}
	if err := Run(t.Context(), &Env{Config: &config.Node{}, UI: spy}, workflow, Options{}); err == nil {
		t.Error("no error")
	}
	want := map[string]int{"certs": 101, "certs/a": 101, "certs/b": 101}
	if diff := cmp.Diff(want, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}
}

// TestGroupsAreEndedWhereAnotherFails: what stands in them does not begin.
func TestGroupsAreEndedWhereAnotherFails(t *testing.T) {
	began, failed := make(chan struct{}), make(chan struct{})
	spy := spyUI{quietUI(), &sync.Mutex{}, map[string]int{}}
	workflow := []Phase{{Name: "all", SideBySide: true, Children: []Phase{
		{Name: "a", Run: func(context.Context, *Env) error { <-began; close(failed); return errors.New("no") }},
		{Name: "b", Children: []Phase{
			{Name: "x", Run: func(ctx context.Context, _ *Env) error { close(began); <-failed; <-ctx.Done(); return nil }},
			{Name: "y", Run: func(context.Context, *Env) error { return nil }},
		}},
	}}}
	if err := Run(t.Context(), &Env{Config: &config.Node{}, UI: spy}, workflow, Options{}); err == nil {
		t.Error("no error")
	}
	want := map[string]int{"all": 101, "all/a": 101, "all/b": 101, "all/b/x": 101}
	if diff := cmp.Diff(want, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}
}

// numberedKey tells keys apart by the order in which they were generated.
type numberedKey struct {
	crypto.Signer
	number int
}

// TestKeysAreGeneratedBeforeTheirPhasesTurn, and the first goes to whoever is
// waited for most. Who needs none gets none.
func TestKeysAreGeneratedBeforeTheirPhasesTurn(t *testing.T) {
	var mu sync.Mutex
	made, got := 0, map[string]int{}
	newKey := func(*Env) (crypto.Signer, error) {
		mu.Lock()
		defer mu.Unlock()
		made++
		return numberedKey{number: made}, nil
	}
	keyed := func(name string, needs bool) Phase {
		return Phase{
			Name:     name,
			NeedsKey: func(*Env) bool { return needs },
			RunWithKey: func(_ context.Context, _ *Env, key crypto.Signer) error {
				mu.Lock()
				defer mu.Unlock()
				if key != nil {
					got[name] = key.(numberedKey).number
				}
				return nil
			},
		}
	}
	checks := Phase{Name: "checks", Run: func(context.Context, *Env) error {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			enough := made == 3
			mu.Unlock()
			if enough || time.Now().After(deadline) {
				return nil
			}
		}
	}}
	workflow := []Phase{checks, {Name: "certs", SideBySide: true, Children: []Phase{
		keyed("last", true), keyed("kept", false), keyed("leaf", true).needing("certs/ca"), keyed("ca", true),
	}}, (&journal{}).phase("end", nil).needing("certs/leaf")}
	if err := run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{}, newKey); err != nil {
		t.Fatal(err)
	}
	if _, kept := got["kept"]; kept || len(got) != 3 || made != 3 || got["ca"]+got["leaf"]+got["last"] != 6 {
		t.Errorf("%d keys, and %v got them", made, got)
	}

	if diff := cmp.Diff([]string{"certs/ca", "certs/leaf", "certs/last"}, handed(t, workflow)); diff != "" {
		t.Errorf("handed (-want +got):\n%s", diff)
	}

	made, got = 0, map[string]int{}
	if err := run(t.Context(), testEnv(&bytes.Buffer{}), workflow[1:], Options{Serial: true}, newKey); err != nil || made > 0 {
		t.Errorf("one after another, each makes its own: %v, %d keys", err, made)
	}
}

// handed lists who would get the first key, the second, and so on, if all were
// generated before anything else.
func handed(t *testing.T, workflow []Phase) []string {
	t.Helper()
	s := &schedule{env: testEnv(&bytes.Buffer{}), groups: map[string]*group{}}
	s.flatten(s.env.Config, workflow, "", order{}, false, nil)
	s.resolve()
	s.weigh()
	s.orderKeys()
	var paths []string
	for range s.keys {
		if err := s.hand(madeKey{}); err != nil {
			t.Fatal(err)
		}
		for _, st := range s.steps {
			if st.keyed && !slices.Contains(paths, st.path) {
				paths = append(paths, st.path)
			}
		}
	}
	return paths
}

// TestKeysOfInit go first to what the kubelet needs for its start, then to
// etcd, which has to elect itself, then to the API server; the kubeconfigs of
// those who only ask that can wait.
func TestKeysOfInit(t *testing.T) {
	workflow := Init()
	for i := range workflow {
		for j := range workflow[i].Children {
			if child := &workflow[i].Children[j]; child.NeedsKey != nil {
				child.NeedsKey, child.Skip = func(*Env) bool { return true }, nil
			}
		}
	}
	got := handed(t, workflow)
	if len(got) != 16 {
		t.Fatalf("%d keys: %v", len(got), got)
	}
	for _, part := range []struct{ of, want []string }{
		{got[:2], []string{"certs/ca", "kubeconfig/kubelet"}},
		{got[2:5], []string{"certs/etcd-ca", "certs/etcd-peer", "certs/etcd-server"}},
		{got[5:11], []string{"certs/apiserver", "certs/apiserver-etcd-client", "certs/apiserver-kubelet-client", "certs/front-proxy-ca", "certs/front-proxy-client", "certs/sa"}},
		{got[11:], []string{"certs/etcd-healthcheck-client", "kubeconfig/admin", "kubeconfig/controller-manager", "kubeconfig/scheduler", "kubeconfig/super-admin"}},
	} {
		if diff := cmp.Diff(part.want, slices.Sorted(slices.Values(part.of))); diff != "" {
			t.Errorf("handed in the order %v (-want +got):\n%s", got, diff)
		}
	}
}

// TestNobodyWaitsForAKeyInVain once a check has failed, and a phase that has
// begun is ended. What keeps keys from being made is told of a phase.
func TestNobodyWaitsForAKeyInVain(t *testing.T) {
	began, forever := make(chan struct{}), make(chan struct{})
	defer close(forever)
	spy := spyUI{quietUI(), &sync.Mutex{}, map[string]int{}}
	ca := Phase{
		Name:       "ca",
		NeedsKey:   func(*Env) bool { return true },
		RunWithKey: func(context.Context, *Env, crypto.Signer) error { t.Error("it ran"); return nil },
	}
	workflow := []Phase{{Name: "all", SideBySide: true, Children: []Phase{
		{Name: "check", Run: func(context.Context, *Env) error {
			<-began
			for !spy.has("all/ca") {
				time.Sleep(time.Millisecond)
			}
			return errors.New("no")
		}},
		ca,
	}}}
	env := &Env{Config: &config.Node{}, UI: spy}
	err := run(t.Context(), env, workflow, Options{}, func(*Env) (crypto.Signer, error) { close(began); <-forever; return nil, nil })
	if got := message(err); got != "phase all/check: no" {
		t.Errorf("error %q", got)
	}
	if diff := cmp.Diff(map[string]int{"all": 101, "all/check": 101, "all/ca": 101}, spy.opened); diff != "" {
		t.Errorf("starts and 100 times ends (-want +got):\n%s", diff)
	}

	err = run(t.Context(), env, []Phase{ca}, Options{}, func(*Env) (crypto.Signer, error) { return nil, errors.New("unknown algorithm") })
	if got := message(err); got != "phase ca: unknown algorithm" {
		t.Errorf("error %q", got)
	}
}

func TestSkippedPhasesSayWhy(t *testing.T) {
	var out bytes.Buffer
	workflow := []Phase{{Name: "etcd", Skip: func(*config.Node) string { return "etcd is external" }}}
	if err := Run(t.Context(), testEnv(&out), workflow, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "[etcd] skipped: etcd is external\n"; out.String() != want {
		t.Errorf("said %q, want %q", out.String(), want)
	}
}

func TestCancelledRunStartsNothing(t *testing.T) {
	j := &journal{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, testEnv(&bytes.Buffer{}), []Phase{j.phase("a", nil)}, Options{})
	if !errors.Is(err, context.Canceled) || len(j.ran) > 0 {
		t.Errorf("error %v, ran %v", err, j.ran)
	}
}

func TestInitHasKubeadmsPhases(t *testing.T) {
	want := strings.Fields(`preflight
		certs certs/ca certs/apiserver certs/apiserver-kubelet-client certs/front-proxy-ca certs/front-proxy-client
		certs/etcd-ca certs/etcd-server certs/etcd-peer certs/etcd-healthcheck-client certs/apiserver-etcd-client certs/sa
		kubeconfig kubeconfig/admin kubeconfig/super-admin kubeconfig/kubelet kubeconfig/controller-manager kubeconfig/scheduler
		kubelet-start
		etcd etcd/local
		control-plane control-plane/apiserver control-plane/controller-manager control-plane/scheduler
		wait-control-plane wait-control-plane/api-server wait-control-plane/health wait-control-plane/controllers
		upload-config upload-config/kubeadm upload-config/kubelet
		upload-certs mark-control-plane bootstrap-token
		kubelet-finalize kubelet-finalize/enable-client-cert-rotation
		addon addon/coredns addon/kube-proxy
		show-join-command`)
	if diff := cmp.Diff(want, Paths(Init())); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
