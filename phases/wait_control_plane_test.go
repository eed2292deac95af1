// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	hostplan "github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// shortWaits are timeouts that are short enough for a test.
const shortWaits = "timeouts: {kubeletHealthCheck: 150ms, controlPlaneComponentHealthCheck: 150ms, tlsBootstrap: 150ms}\n"

// probes answers by URL: nil for all except those in broken.
type probes struct {
	mu     sync.Mutex
	asked  []string
	broken map[string]error
}

func (p *probes) answer(_ context.Context, probe host.Probe) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.asked, probe.URL) {
		p.asked = append(p.asked, probe.URL)
	}
	return p.broken[probe.URL]
}

func (p *probes) has(url string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.asked, url)
}

const (
	kubeletURL           = "http://127.0.0.1:10248/healthz"
	apiServerURL         = "https://192.0.2.11:6443/livez"
	controllerManagerURL = "https://127.0.0.1:10257/healthz"
	schedulerURL         = "https://127.0.0.1:10259/livez"
)

func waitStage(t *testing.T, documents string) (*stage, *probes) {
	t.Helper()
	s := newStage(t, documents)
	answers := &probes{broken: map[string]error{}}
	s.host.On.Probe = answers.answer
	return s, answers
}

// The endpoints are those of the static Pods on disk, including extra arguments and patches.
func TestWaitAsksWhatTheManifestsName(t *testing.T) {
	s, answers := waitStage(t, fixture.InitDocument+"patches: {directory: /patches}\n"+fixture.ClusterDocument+
		"scheduler: {extraArgs: [{name: bind-address, value: 10.1.2.3}, {name: secure-port, value: '20259'}]}\n")
	s.put(t, "/patches/kube-apiserver0+json.yaml",
		"[{op: replace, path: /spec/containers/0/livenessProbe/httpGet/host, value: 10.9.9.9}]")
	s.put(t, "/patches/kube-controller-manager.yaml", `
spec:
  containers:
  - name: kube-controller-manager
    ports: [{name: health, containerPort: 1234}]
    livenessProbe: {httpGet: {host: "::1", port: health, path: /ready, scheme: HTTP}}`)
	s.play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	slices.Sort(answers.asked)
	want := []string{"http://127.0.0.1:10248/healthz", "http://[::1]:1234/ready", "https://10.1.2.3:10259/livez", "https://10.9.9.9:6443/livez"}
	if diff := cmp.Diff(want, answers.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	s.saidOnce(t, line{"Waiting", "kubelet", kubeletURL + ",", "4m0s"}, line{"kube-scheduler", "healthy"})
}

func TestWaitWithoutKubeletHealthz(t *testing.T) {
	s, answers := waitStage(t, fixture.InitDocument+fixture.ClusterDocument+
		"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzPort: 0\n")
	s.play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	if slices.Contains(answers.asked, kubeletURL) || len(answers.asked) != 3 {
		t.Errorf("asked %v", answers.asked)
	}
}

func TestWaitEndsWithTheLastAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		url    string
		want   []string
		before func(s *stage)
		status int
	}{
		"kubelet": {url: kubeletURL, want: []string{"kubelet", "`journalctl -u kubelet`"}},
		"kubelet, and no bus": {url: kubeletURL, before: func(s *stage) {
			s.host.Fail["Unit"] = errors.New("no bus")
		}, want: []string{"kubelet", "`journalctl -u kubelet`"}},
		"kube-apiserver":                {url: apiServerURL, want: []string{"kube-apiserver", "at " + apiServerURL + ";", "/var/log/pods"}},
		"kube-apiserver, which answers": {url: apiServerURL, status: 500, want: []string{"kube-apiserver", "/var/log/pods", "GET " + apiServerURL + ": 500 Internal Server Error"}},
		"kube-scheduler":                {url: schedulerURL, want: []string{"kube-scheduler", "at " + schedulerURL + ";", "/var/log/pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, answers := waitStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
			s.host.Jobs = []string{"start kubelet.service"}
			s.play(t, controlPlane())
			answers.broken[test.url] = errors.New("out of paper")
			if test.status != 0 {
				answers.broken[test.url] = &host.ProbeError{URL: test.url, Status: test.status}
			}
			if test.before != nil {
				test.before(s)
			}
			err := Run(t.Context(), s.Env, []Phase{waitControlPlane()}, Options{})
			answer := errOf(answers, test.url)
			if !strings.HasPrefix(message(err), "phase wait-control-plane/health: ") || !strings.Contains(message(err), ": "+answer.Error()+"; ") || !errors.Is(err, answer) {
				t.Errorf("error %q lacks the phase, or the last answer", message(err))
			}
			fact.Error(t, err, test.want...)
		})
	}
}

// TestOthersWaitForTheAPIServer: components that can do nothing without the API server leave the processors to it
// until it gives any answer. By then it has what they need.
func TestOthersWaitForTheAPIServer(t *testing.T) {
	s, answers := waitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	written := func() bool {
		_, err := s.Host.Lstat("/etc/kubernetes/manifests/kube-scheduler.yaml")
		return err == nil
	}
	var mu sync.Mutex
	asked := 0
	s.host.On.Probe = func(ctx context.Context, p host.Probe) error {
		if p.URL != apiServerURL {
			return answers.answer(ctx, p)
		}
		mu.Lock()
		defer mu.Unlock()
		switch asked++; {
		case asked <= 3 && written():
			t.Error("the scheduler did not wait")
		case asked <= 3:
			return errors.New("connection refused")
		case !written():
			return &host.ProbeError{URL: p.URL, Status: 403}
		}
		return nil
	}
	s.play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	if !written() || asked < 5 {
		t.Errorf("asked %d times, written: %v", asked, written())
	}
	if len(s.done) < 30 || s.done[0] != "pre-create Role slipway:first-leases" || !slices.Contains(s.done, "pre-create ServiceAccount token-cleaner") {
		t.Errorf("the API has %v", s.done)
	}
}

func errOf(p *probes, url string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken[url]
}

// endUI closes ended when a phase has ended.
type endUI struct {
	ui.UI
	phase string
	ended chan struct{}
}

func (e endUI) Start(phase string) (ui.UI, func(error)) {
	in, end := e.UI.Start(phase)
	return endUI{in, e.phase, e.ended}, func(err error) {
		end(err)
		if phase == e.phase {
			close(e.ended)
		}
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	s, answers := waitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, controlPlane())
	answers.broken[controllerManagerURL] = errors.New("not yet")
	ctx, cancel := context.WithCancelCause(t.Context())
	headStart := make(chan struct{})
	s.UI = endUI{s.UI, "wait-control-plane/api-server", headStart}
	go func() {
		for <-headStart; !answers.has(controllerManagerURL); {
			time.Sleep(time.Millisecond)
		}
		cancel(errors.New("interrupt signal received"))
	}()
	err := Run(ctx, s.Env, []Phase{waitControlPlane()}, Options{})
	if !strings.HasPrefix(message(err), "phase wait-control-plane/health: ") || !strings.HasSuffix(message(err), ": "+context.Cause(ctx).Error()) {
		t.Errorf("error %q", message(err))
	}
	fact.Error(t, err, "kube-controller-manager", "at "+controllerManagerURL+";", "/var/log/pods", ": not yet;")
}

// A static Pod that nobody writes makes a run fail. A plan waits for nothing that it cannot cause, and asks neither
// the kubelet nor the runtime.
func TestWaitForAMissingManifest(t *testing.T) {
	s, answers := waitStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
	s.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{livenessProbe: {httpGet: {host: 192.0.2.11, port: 6443, path: /livez}}}]}")
	err := Run(t.Context(), s.Env, []Phase{waitControlPlane()}, Options{})
	if !strings.Contains(message(err), "phase `control-plane ") {
		t.Errorf("error %q", message(err))
	}
	answers.asked = nil
	s.host.On.Unit = func(context.Context, string) (host.UnitState, error) {
		t.Error("a plan asks the kubelet")
		return host.UnitState{}, nil
	}
	plan := *s.Env
	plan.Host = hostplan.NewOverlay(s.host, func(a host.Action) { t.Errorf("it does %+v", a) })
	if err := Run(t.Context(), &plan, []Phase{waitControlPlane()}, Options{Serial: true}); err != nil || len(answers.asked) > 0 {
		t.Errorf("a plan asks %v: %v", answers.asked, err)
	}
}

func TestWaitFaultsOfManifests(t *testing.T) {
	const path = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	for name, test := range map[string]struct {
		manifest string
		want     []string
	}{
		"missing":   {"", []string{"static Pod", "`control-plane scheduler`", path}},
		"no YAML":   {"{", []string{path, "valid Pod:"}},
		"no Pod":    {"replicas: 3", []string{path, "valid Pod:"}},
		"no probe":  {"spec: {containers: [{name: a}]}", []string{path + ":", "HTTP liveness probe"}},
		"exec only": {"spec: {containers: [{name: a, livenessProbe: {exec: {command: [x]}}}]}", []string{path + ":", "HTTP liveness probe"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := waitStage(t, fixture.InitDocument+fixture.ClusterDocument)
			if test.manifest != "" {
				s.put(t, path, test.manifest)
			}
			_, err := componentProbe(s.Env, "kube-scheduler")
			fact.Error(t, err, test.want...)
		})
	}
}
