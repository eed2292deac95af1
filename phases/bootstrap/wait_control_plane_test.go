// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

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
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestKubeletIsWaitedForWhereItAnswers: patches and flags may move its health endpoint.
func TestKubeletIsWaitedForWhereItAnswers(t *testing.T) {
	const patched = fixture.InitDocument + "patches: {directory: /patches}\n" + fixture.ClusterDocument
	for _, tt := range []struct{ name, documents, patch, want string }{
		{"as usual", fixture.InitDocument + fixture.ClusterDocument, "", phasetest.KubeletURL},
		{"patched port", patched, "healthzPort: 10300", "http://127.0.0.1:10300/healthz"},
		{"patched address", patched, "healthzBindAddress: '::1'", "http://[::1]:10248/healthz"},
		{"patched away", patched, "healthzPort: 0", ""},
		{"settings of their own defaults", patched, "{healthzPort: null, healthzBindAddress: null}", phasetest.KubeletURL},
		{"port by flag, the last one", phasetest.WithKubeletFlags("{name: healthz-port, value: '10301'}, {name: healthz-port, value: '10302'}"), "",
			"http://127.0.0.1:10302/healthz"},
		{"address by flag", phasetest.WithKubeletFlags("{name: healthz-bind-address, value: 10.1.2.3}"), "", "http://10.1.2.3:10248/healthz"},
		{"no endpoint by flag", phasetest.WithKubeletFlags("{name: healthz-port, value: '0'}"), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, answers := phasetest.WaitStage(t, tt.documents)
			s.Put(t, "/patches/kubeletconfiguration.yaml", tt.patch)
			s.Play(t, kubelet.Start())
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, answers.Asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			// A command that doesn't know this node's configuration.
			s.Config.KubeletExtraArgs, answers.Asked = nil, nil
			if err := node.WaitKubelet(t.Context(), s.Env); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, answers.Asked); diff != "" {
				t.Errorf("without the configuration, asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdministratorsFlagsCount: the packages' unit puts them last.
func TestAdministratorsFlagsCount(t *testing.T) {
	s := phasetest.NewStage(t, phasetest.WithKubeletFlags("{name: healthz-port, value: '10301'}, {name: rotate-certificates, value: 'false'}"))
	s.Put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\nEnvironment=\"A=--rotate-certificates\"\n")
	s.Put(t, "/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--healthz-port=10303 --healthz-bind-address=$IP\n")
	settings, err := thisnode.KubeletSettings(s.Host, &s.Config.Machine)
	if err != nil || *settings.HealthzPort != 10303 || !settings.RotateCertificates || settings.HealthzBindAddress == "$IP" {
		t.Errorf("%+v, %v", settings, err)
	}
}

func TestKubeletSettingsThatAreNone(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, "/var/lib/kubelet/config.yaml", "{")
	if err := node.WaitKubelet(t.Context(), s.Env); !strings.HasPrefix(phasetest.Message(err), "/var/lib/kubelet/config.yaml: not a KubeletConfiguration: ") {
		t.Errorf("error %q", phasetest.Message(err))
	}
}

// The endpoints come from the static Pods on disk, including extra arguments and patches.
func TestWaitAsksWhatTheManifestsName(t *testing.T) {
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+"patches: {directory: /patches}\n"+fixture.ClusterDocument+
		"scheduler: {extraArgs: [{name: bind-address, value: 10.1.2.3}, {name: secure-port, value: '20259'}]}\n")
	s.Put(t, "/patches/kube-apiserver0+json.yaml",
		"[{op: replace, path: /spec/containers/0/livenessProbe/httpGet/host, value: 10.9.9.9}]")
	s.Put(t, "/patches/kube-controller-manager.yaml", `
spec:
  containers:
  - name: kube-controller-manager
    ports: [{name: health, containerPort: 1234}]
    livenessProbe: {httpGet: {host: "::1", port: health, path: /ready, scheme: HTTP}}`)
	s.Play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	slices.Sort(answers.Asked)
	want := []string{"http://127.0.0.1:10248/healthz", "http://[::1]:1234/ready", "https://10.1.2.3:10259/livez", "https://10.9.9.9:6443/livez"}
	if diff := cmp.Diff(want, answers.Asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	s.SaidOnce(t, phasetest.Line{"Waiting", "kubelet", phasetest.KubeletURL + ",", "4m0s"}, phasetest.Line{"kube-scheduler", "healthy"})
}

func TestWaitWithoutKubeletHealthz(t *testing.T) {
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument+
		"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzPort: 0\n")
	s.Play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	if slices.Contains(answers.Asked, phasetest.KubeletURL) || len(answers.Asked) != 3 {
		t.Errorf("asked %v", answers.Asked)
	}
}

func TestWaitEndsWithTheLastAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		url    string
		want   []string
		before func(s *phasetest.Stage)
		status int
	}{
		"kubelet": {url: phasetest.KubeletURL, want: []string{"kubelet", "`journalctl -u kubelet`"}},
		"kubelet, and no bus": {url: phasetest.KubeletURL, before: func(s *phasetest.Stage) {
			s.FakeHost.Fail["Unit"] = errors.New("no bus")
		}, want: []string{"kubelet", "`journalctl -u kubelet`"}},
		"kube-apiserver":                {url: phasetest.APIServerURL, want: []string{"kube-apiserver", "at " + phasetest.APIServerURL + ";", "/var/log/pods"}},
		"kube-apiserver, which answers": {url: phasetest.APIServerURL, status: 500, want: []string{"kube-apiserver", "/var/log/pods", "GET " + phasetest.APIServerURL + ": 500 Internal Server Error"}},
		"kube-scheduler":                {url: phasetest.SchedulerURL, want: []string{"kube-scheduler", "at " + phasetest.SchedulerURL + ";", "/var/log/pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, answers := phasetest.WaitStage(t, fixture.InitDocument+phasetest.ShortWaits+fixture.ClusterDocument)
			s.FakeHost.Jobs = []string{"start kubelet.service"}
			s.Play(t, controlPlane())
			answers.Broken[test.url] = errors.New("out of paper")
			if test.status != 0 {
				answers.Broken[test.url] = &host.ProbeError{URL: test.url, Status: test.status}
			}
			if test.before != nil {
				test.before(s)
			}
			err := step.Run(t.Context(), s.Env, []step.Phase{waitControlPlane()}, step.Options{})
			answer := phasetest.ErrOf(answers, test.url)
			if !strings.HasPrefix(phasetest.Message(err), "phase wait-control-plane/health: ") || !strings.Contains(phasetest.Message(err), ": "+answer.Error()+"; ") || !errors.Is(err, answer) {
				t.Errorf("error %q lacks the phase, or the last answer", phasetest.Message(err))
			}
			fact.Error(t, err, test.want...)
		})
	}
}

// TestOthersWaitForTheAPIServer: components that can do nothing without the API server leave it the processors until it gives any
// answer. By then it has the objects they need.
func TestOthersWaitForTheAPIServer(t *testing.T) {
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	written := func() bool {
		_, err := s.Host.Lstat("/etc/kubernetes/manifests/kube-scheduler.yaml")
		return err == nil
	}
	var mu sync.Mutex
	asked := 0
	s.FakeHost.On.Probe = func(ctx context.Context, p host.Probe) error {
		if p.URL != phasetest.APIServerURL {
			return answers.Answer(ctx, p)
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
	s.Play(t, controlPlane(), waitControlPlane().Needing("control-plane/apiserver"))
	if !written() || asked < 5 {
		t.Errorf("asked %d times, written: %v", asked, written())
	}
	if len(s.Done) < 30 || s.Done[0] != "pre-create Role slipway:first-leases" || !slices.Contains(s.Done, "pre-create ServiceAccount token-cleaner") {
		t.Errorf("the API has %v", s.Done)
	}
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
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, controlPlane())
	answers.Broken[phasetest.ControllerManagerURL] = errors.New("not yet")
	ctx, cancel := context.WithCancelCause(t.Context())
	headStart := make(chan struct{})
	s.UI = endUI{s.UI, "wait-control-plane/api-server", headStart}
	go func() {
		for <-headStart; !answers.Has(phasetest.ControllerManagerURL); {
			time.Sleep(time.Millisecond)
		}
		cancel(errors.New("interrupt signal received"))
	}()
	err := step.Run(ctx, s.Env, []step.Phase{waitControlPlane()}, step.Options{})
	if !strings.HasPrefix(phasetest.Message(err), "phase wait-control-plane/health: ") || !strings.HasSuffix(phasetest.Message(err), ": "+context.Cause(ctx).Error()) {
		t.Errorf("error %q", phasetest.Message(err))
	}
	fact.Error(t, err, "kube-controller-manager", "at "+phasetest.ControllerManagerURL+";", "/var/log/pods", ": not yet;")
}

// A static Pod that nobody writes makes a run fail. A plan waits for nothing it can't cause, and asks neither the kubelet nor the
// runtime.
func TestWaitForAMissingManifest(t *testing.T) {
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+phasetest.ShortWaits+fixture.ClusterDocument)
	s.Put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{livenessProbe: {httpGet: {host: 192.0.2.11, port: 6443, path: /livez}}}]}")
	err := step.Run(t.Context(), s.Env, []step.Phase{waitControlPlane()}, step.Options{})
	if !strings.Contains(phasetest.Message(err), "phase `control-plane ") {
		t.Errorf("error %q", phasetest.Message(err))
	}
	answers.Asked = nil
	s.FakeHost.On.Unit = func(context.Context, string) (host.UnitState, error) {
		t.Error("a plan asks the kubelet")
		return host.UnitState{}, nil
	}
	plan := *s.Env
	plan.Host = hostplan.NewOverlay(s.FakeHost, func(a host.Action) { t.Errorf("it does %+v", a) })
	if err := step.Run(t.Context(), &plan, []step.Phase{waitControlPlane()}, step.Options{Serial: true}); err != nil || len(answers.Asked) > 0 {
		t.Errorf("a plan asks %v: %v", answers.Asked, err)
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
			s, _ := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument)
			if test.manifest != "" {
				s.Put(t, path, test.manifest)
			}
			_, err := node.ComponentProbe(s.Env, "kube-scheduler")
			fact.Error(t, err, test.want...)
		})
	}
}
