// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// storedElsewhere adds fields to a stored configuration, as `reconfigure` does on another control plane.
func storedElsewhere(t *testing.T, api *cluster.Plan, name, key, fields string) {
	t.Helper()
	storedAt(t, api, name, key, fields, time.Now().Add(time.Minute))
}

func storedAt(t *testing.T, api *cluster.Plan, name, key, fields string, at time.Time) {
	t.Helper()
	cm := node.ConfigMap(name)
	_, err := api.Update(t.Context(), cm, func() (bool, error) {
		cm.Data[key] = strings.NewReplacer("scheduler: {}\n", "", "apiServer: {}\n", "").Replace(cm.Data[key]) + fields
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, edits.ChangedByOperator, at.UTC().Format(time.RFC3339))
		return true, nil
	})
	phasetest.Fatal(t, err)
}

func changeElsewhere(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	storedElsewhere(t, s.API, "kubeadm-config", "ClusterConfiguration",
		"apiServer: {extraArgs: [{name: profiling, value: \"false\"}], certSANs: [new.example.org]}\n")
	storedElsewhere(t, s.API, "kubelet-config", "kubelet", "maxPods: 55\n")
	s.Done = nil
}

// toStored runs `reconfigure node`.
func toStored(t *testing.T, s *phasetest.Stage) error {
	t.Helper()
	c, _, err := loaderOn(s).Stored(t.Context())
	phasetest.Fatal(t, err)
	s.Config = c.Node
	r := New(c, "/usr/bin/slipway")
	return step.Run(t.Context(), s.Env, r.NodePhases(), step.Options{})
}

// TestNode: another control plane gets the stored configuration, and stores nothing. The second run does nothing.
func TestNode(t *testing.T) {
	s := live(t)
	changeElsewhere(t, s)
	before := stored(t, s, "kubeadm-config", "ClusterConfiguration")
	phasetest.Fatal(t, toStored(t, s))
	fact.In(t, s.Get(t, apiServer), "--profiling=false")
	fact.In(t, s.Get(t, settings), "maxPods: 55")
	if err := s.Cert(t, serverCert).VerifyHostname("new.example.org"); err != nil {
		t.Errorf("the certificate: %v", err)
	}
	if got := state(t, s); got != trial.Completed || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("the change is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
	}
	if slices.ContainsFunc(s.Done, func(d string) bool { return strings.Contains(d, "ConfigMap") }) || stored(t, s, "kubeadm-config", "ClusterConfiguration") != before {
		t.Errorf("did %q", s.Done)
	}
	s.Done, s.FakeHost.Jobs = nil, nil
	phasetest.Fatal(t, toStored(t, s))
	if stopped := s.FakeHost.Did("stop container"); len(s.Done)+len(stopped)+len(s.FakeHost.Orders()) > 0 {
		t.Errorf("the second time, did %q, and stopped %q", s.Done, stopped)
	}
}

// TestPending: a second change waits until this control plane has the first, unless it's asked for both.
func TestPending(t *testing.T) {
	for name, change := range map[string]struct{ configMap, key, text, path string }{
		"a component":   {"kubeadm-config", "ClusterConfiguration", "scheduler: {extraArgs: [{name: v, value: \"3\"}]}\n", "/etc/kubernetes/manifests/kube-scheduler.yaml"},
		"a certificate": {"kubeadm-config", "ClusterConfiguration", "apiServer: {certSANs: [first.example.org]}\n", serverCert},
		"the kubelet":   {"kubelet-config", "kubelet", "podPidsLimit: 99\n", settings},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			storedElsewhere(t, s.API, change.configMap, change.key, change.text)
			before := files(t, s)
			fact.Error(t, run(t, s), "PendingConfiguration", change.path, "`slipway reconfigure node`")
			if diff := cmp.Diff(before, files(t, s)); diff != "" || state(t, s) != "" {
				t.Errorf("files:\n%s", diff)
			}
			phasetest.Fatal(t, toStored(t, s))
			phasetest.Fatal(t, run(t, s))
			fact.In(t, s.Get(t, settings), "maxPods: 55")
		})
	}
}

// TestNamesOthers: a change ends with the nodes that don't have it yet and that it's about.
func TestNamesOthers(t *testing.T) {
	plane := map[string]string{cluster.LabelControlPlane: ""}
	nodes := []corev1.Node{named("cp-1", plane), named("cp-2", plane), named("worker-1", nil)}
	for name, test := range map[string]struct {
		field      reconfiguring.Field
		said, kept []string
	}{
		"of components": {reconfiguring.Field{Source: config.ClusterSource, Path: "scheduler.extraArgs"}, []string{"cp-2"}, []string{"cp-1", "worker-1"}},
		"of kubelets":   {reconfiguring.Field{Source: config.KubeletSource, Path: "maxPods"}, []string{"cp-2", "worker-1"}, []string{"cp-1"}},
		"of CoreDNS":    {reconfiguring.Field{Source: config.ClusterSource, Path: "dns.imageTag"}, nil, []string{"cp-1", "cp-2", "worker-1"}},
		"of kube-proxy": {reconfiguring.Field{Source: config.KubeProxySource, Path: "mode"}, nil, []string{"cp-1", "cp-2", "worker-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Known: nodes}
			r := &Run{Change: &reconfiguring.Change{Node: s.Config, Fields: []reconfiguring.Field{test.field}}}
			phasetest.Fatal(t, r.reportOtherNodes(t.Context(), s.Env))
			fact.In(t, s.Said.String()+s.Results.String(), test.said...)
			fact.NotIn(t, s.Said.String()+s.Results.String(), test.kept...)
		})
	}
}

// worker is a worker that has joined before the kubelets' settings changed.
func worker(t *testing.T) *phasetest.JoinStage {
	t.Helper()
	s := phasetest.NewJoinStage(t)
	phasetest.Fatal(t, s.Discover(t))
	s.Cluster = s.API
	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	s.Play(t, phasetest.Pick(bootstrap.Join(), "kubelet-start")...)
	s.FakeHost.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: time.Now().Add(time.Hour)}
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	storedElsewhere(t, s.API, "kubelet-config", "kubelet", "podPidsLimit: 99\n")
	s.FakeHost.Jobs, s.Done = nil, nil
	return s
}

// TestWorker: a worker's kubelet gets the stored settings, and the API is only read. If the kubelet doesn't take them, it goes back.
func TestWorker(t *testing.T) {
	t.Run("works", func(t *testing.T) {
		s := worker(t)
		phasetest.Fatal(t, toStored(t, s.Stage))
		fact.In(t, s.Get(t, settings), "podPidsLimit: 99")
		if got := state(t, s.Stage); got != trial.Completed || len(s.Done)+len(guarded(t, s.Stage)) > 0 {
			t.Errorf("the change is %q, did %q, and there are still %q", got, s.Done, guarded(t, s.Stage))
		}
	})
	t.Run("fails", func(t *testing.T) {
		s := worker(t)
		before, refused := s.Get(t, settings), errors.New("it does not work")
		s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
			host.RestartUnit: func(context.Context, string) error {
				if strings.Contains(s.Get(t, settings), "podPidsLimit: 99") {
					return refused
				}
				return nil
			},
		}
		err := toStored(t, s.Stage)
		if back := (*node.RolledBackError)(nil); !errors.Is(err, refused) || !errors.As(err, &back) {
			t.Errorf("%v", err)
		}
		if s.Get(t, settings) != before || state(t, s.Stage) != trial.Reverted || len(s.Done)+len(guarded(t, s.Stage)) > 0 {
			t.Errorf("the change is %q, did %q, and there are still %q:\n%s", state(t, s.Stage), s.Done, guarded(t, s.Stage), s.Get(t, settings))
		}
	})
	t.Run("is killed", func(t *testing.T) {
		s := worker(t)
		before := s.Get(t, settings)
		begin(t, s.Stage, settings)
		s.Put(t, settings, fixture.KubeletConfiguration)
		s.Play(t, finish(true)...)
		if s.Get(t, settings) != before || state(t, s.Stage) != trial.Reverted || len(s.Done) > 0 {
			t.Errorf("the change is %q, did %q:\n%s", state(t, s.Stage), s.Done, s.Get(t, settings))
		}
	})
}

// TestPutBackIsNoEdit: a file that was put back has an older change's settings, not an operator's.
func TestPutBackIsNoEdit(t *testing.T) {
	s := worker(t)
	written, changed := time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	phasetest.Fatal(t, os.Chtimes(s.Root+settings, written, written))
	storedAt(t, s.API, "kubelet-config", "kubelet", "", changed)
	for range 2 { // the second time, too
		begin(t, s.Stage, settings)
		s.Append(t, settings, "podPidsLimit: 99\n")
		s.Play(t, finish(false)...)
	}
	if at, err := trial.WrittenAt(s.Env, settings); err != nil || !at.Equal(written) {
		t.Errorf("%v, %v", at, err)
	}
	s.Append(t, settings, "volumeStatsAggPeriod: 3m0s\n")
	fact.Error(t, toStored(t, s.Stage), "KubeletConfigEdits", "volumeStatsAggPeriod")
}

// TestPutBackEdit: an operator's edit is still one after a change has overwritten it and was put back, or was taken back later.
func TestPutBackEdit(t *testing.T) {
	s := worker(t)
	made := s.Get(t, settings)
	phasetest.Fatal(t, os.Remove(s.Root+settings))
	_, err := s.Host.WriteFile(settings, []byte(made), 0o600) // noted as Slipway's
	phasetest.Fatal(t, err)
	s.Append(t, settings, "podPidsLimit: 77\n")
	edited := s.Get(t, settings)
	write := func(change *Run, text string) *trial.Record {
		change.kubelet = []ownership.File{{Path: settings, Data: []byte(text)}}
		list, err := change.writes(s.Env)
		phasetest.Fatal(t, err)
		record, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", list, trial.Record{})
		phasetest.Fatal(t, err)
		_, err = s.Host.WriteFile(settings, []byte(text), 0o600)
		phasetest.Fatal(t, err)
		return record
	}
	stays := func() {
		t.Helper()
		if of, err := backup.DetectEdit(s.Env, settings); err != nil || of != backup.Edited || s.Get(t, settings) != edited {
			t.Errorf("%v, %v: %s", of, err, s.Get(t, settings))
		}
	}
	for range 2 {
		write(&Run{}, made+"podPidsLimit: 99\n")
		s.Play(t, finish(false)...)
		stays()
	}
	counts := write(&Run{}, made+"podPidsLimit: 99\n")
	phasetest.Fatal(t, counts.MarkCompleted(s.Env))
	if of, err := backup.DetectEdit(s.Env, settings); err != nil || of != backup.Unedited {
		t.Errorf("%v, %v", of, err)
	}
	phasetest.Fatal(t, write(&Run{Reverts: counts}, edited).MarkCompleted(s.Env))
	stays()
}

// TestEndpointOfWorker: a worker's kubelet follows, if the API answers there. Any other server stays.
func TestEndpointOfWorker(t *testing.T) {
	for name, test := range map[string]struct {
		former string
		answer error
		want   string
		facts  []string
	}{
		"follows":  {former: "192.0.2.1:6443", want: "new.example.org:6443"},
		"silence":  {former: "192.0.2.1:6443", answer: context.DeadlineExceeded, want: "192.0.2.1:6443", facts: []string{endpointCheck, "new.example.org:6443"}},
		"no names": {former: "192.0.2.2:6443", want: "192.0.2.1:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			s := worker(t)
			storedElsewhere(t, s.API, "kubeadm-config", "ClusterConfiguration", "controlPlaneEndpoint: new.example.org:6443\n")
			cm := node.ConfigMap("kubeadm-config")
			_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
				metav1.SetMetaDataAnnotation(&cm.ObjectMeta, reconfiguring.FormerEndpoints, test.former)
				return true, nil
			})
			phasetest.Fatal(t, err)
			s.FakeHost.On.Date = func(_ context.Context, p host.Probe) (time.Time, error) {
				if !strings.HasPrefix(p.URL, "https://new.example.org:6443/") || len(p.CA) == 0 || p.ServerName != "" {
					t.Errorf("asked %+v", p)
				}
				return time.Now(), test.answer
			}
			fact.Error(t, toStored(t, s.Stage), test.facts...)
			at, err := kubeconfig.Endpoint([]byte(s.Get(t, kubeletOne)))
			if err != nil || at != test.want {
				t.Errorf("the kubelet connects to %s, %v", at, err)
			}
			if got := state(t, s.Stage); test.answer == nil && got != trial.Completed {
				t.Errorf("the change is %q", got)
			}
			if test.answer == nil {
				s.Said.Reset()
				phasetest.Fatal(t, takeBack(t, s.Stage))
				if at, err := kubeconfig.Endpoint([]byte(s.Get(t, kubeletOne))); err != nil || at != "192.0.2.1:6443" {
					t.Errorf("taken back, the kubelet connects to %s, %v", at, err)
				}
			}
		})
	}
}
