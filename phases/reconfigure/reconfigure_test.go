// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	planning "github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	ofCluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	ofKubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

	apiServer  = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	settings   = "/var/lib/kubelet/config.yaml"
	serverCert = "/etc/kubernetes/pki/apiserver.crt"

	everything = ofCluster + "apiServer: {extraArgs: [{name: profiling, value: \"false\"}], certSANs: [new.example.org]}\n---\n" + ofKubelet + "maxPods: 55\n"
)

// live is a control plane that has been running since init, with the cluster's configuration.
func live(t *testing.T) *phasetest.Stage {
	t.Helper()
	s := phasetest.RestartStage(t, bootstrap.Init())
	s.Play(t, node.UploadConfig())
	s.Play(t, phasetest.Pick(bootstrap.Init(), "kubelet-start", "addon")...)
	s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.Components(s.Config)...)
	s.FakeHost.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: time.Now().Add(time.Hour)}
	s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		s.FakeHost.Runs(time.Now().Add(2*time.Hour), id) // the kubelet starts it again
		return nil
	}
	s.FakeHost.On.ImagePresent = func(context.Context, string, string) (bool, error) { return true, nil }
	s.HasKubelet(t, "v1.37.2")
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	s.FakeHost.Jobs, s.Done = nil, nil
	s.Said.Reset()
	return s
}

func loaderOn(s *phasetest.Stage) reconfiguring.Loader {
	return reconfiguring.NewLoader(s.Host, s.Cluster, config.Options{Facts: config.HostFacts{Hostname: "cp-1"}})
}

// change loads the documents, and makes the stage's node the changed one.
func change(t *testing.T, s *phasetest.Stage) *Run {
	t.Helper()
	return changeTo(t, s, everything)
}

func changeTo(t *testing.T, s *phasetest.Stage, documents string) *Run {
	t.Helper()
	c, _, err := loaderOn(s).Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(documents)})
	phasetest.Fatal(t, err)
	s.Config = c.Node
	return New(c, "/usr/bin/slipway")
}

// run changes everything.
func run(t *testing.T, s *phasetest.Stage) error {
	t.Helper()
	return step.Run(t.Context(), s.Env, change(t, s).Phases(), step.Options{})
}

// begin puts files on trial.
func begin(t *testing.T, s *phasetest.Stage, paths ...string) *trial.Record {
	t.Helper()
	var writes []trial.Write
	for _, path := range paths {
		writes = append(writes, trial.Write{Path: path})
	}
	record, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", writes, trial.Record{})
	phasetest.Fatal(t, err)
	return record
}

// files are the node's files that a change may write, by path.
func files(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{apiServer, settings, serverCert, "/etc/kubernetes/pki/apiserver.key", "/etc/kubernetes/manifests/etcd.yaml"} {
		all[path] = s.Get(t, path)
	}
	return all
}

func stored(t *testing.T, s *phasetest.Stage, name, key string) string {
	t.Helper()
	text, err := cluster.ConfigMapText(t.Context(), s.API, "kube-system", name, key)
	phasetest.Fatal(t, err)
	return text
}

// guarded are the units that put the node back.
func guarded(t *testing.T, s *phasetest.Stage) []string {
	t.Helper()
	paths, err := filepath.Glob(s.Root + "/etc/systemd/system/slipway-*.service")
	phasetest.Fatal(t, err)
	return paths
}

// state is that of the last change; empty for none.
func state(t *testing.T, s *phasetest.Stage) trial.State {
	t.Helper()
	last, err := trial.Last(s.Env)
	phasetest.Fatal(t, err)
	if last == nil {
		return ""
	}
	return last.State
}

// TestChange: a change that works is stored last, and counts. The same change again does nothing.
func TestChange(t *testing.T) {
	s := live(t)
	before := files(t, s)
	old := s.Cert(t, serverCert)
	phasetest.Fatal(t, run(t, s))
	fact.In(t, s.Get(t, apiServer), "--profiling=false")
	fact.In(t, s.Get(t, settings), "maxPods: 55")
	cert := s.Cert(t, serverCert)
	if err := cert.VerifyHostname("new.example.org"); err != nil || !cmp.Equal(cert.PublicKey, old.PublicKey) {
		t.Errorf("the certificate: %v", err)
	}
	fact.In(t, stored(t, s, "kubeadm-config", "ClusterConfiguration"), "new.example.org", "profiling")
	fact.In(t, stored(t, s, "kubelet-config", "kubelet"), "maxPods: 55")
	if at := s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"); at != before["/etc/kubernetes/manifests/etcd.yaml"] {
		t.Error("etcd's static Pod has changed")
	}
	if got := state(t, s); got != trial.Completed || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("the change is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
	}
	last := len(s.Done) - 1
	order := slices.DeleteFunc(slices.Clone(s.Done), func(d string) bool { return !strings.Contains(d, "ConfigMap") })
	if want := []string{"ensure ConfigMap kubelet-config", "ensure ConfigMap kubeadm-config"}; !slices.Equal(order, want) || !strings.Contains(s.Done[last], "slipway-upgrade") {
		t.Errorf("did %q", s.Done)
	}
	s.Done, s.FakeHost.Jobs = nil, nil
	phasetest.Fatal(t, run(t, s))
	if stopped := s.FakeHost.Did("stop container"); len(s.Done)+len(stopped) > 0 {
		t.Errorf("the second time, did %q, and stopped %q", s.Done, stopped)
	}
}

// TestPutsBack: if anything fails on trial, the node's files and the cluster's configuration are as before, and the Lease is free.
func TestPutsBack(t *testing.T) {
	refused := errors.New("it does not work")
	failsOn := func(path, text string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) {
			s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
				host.RestartUnit: func(context.Context, string) error {
					if strings.Contains(s.Get(t, path), text) {
						return refused
					}
					return nil
				},
			}
		}
	}
	for name, breaks := range map[string]func(*testing.T, *phasetest.Stage){
		"the API server": failsOn(apiServer, "--profiling=false"),
		"the kubelet":    failsOn(settings, "maxPods: 55"),
		"an add-on": func(_ *testing.T, s *phasetest.Stage) {
			s.Cluster = &refusing{s.API, "kube-proxy", 2, refused}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			before, configuration := files(t, s), stored(t, s, "kubeadm-config", "ClusterConfiguration")
			breaks(t, s)
			err := step.Run(t.Context(), s.Env, changeTo(t, s, everything+"---\n"+ofKubeProxy).Phases(), step.Options{})
			if back := (*node.RolledBackError)(nil); !errors.Is(err, refused) || !errors.As(err, &back) {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(before, files(t, s)); diff != "" {
				t.Errorf("files:\n%s", diff)
			}
			if got := stored(t, s, "kubeadm-config", "ClusterConfiguration"); got != configuration {
				t.Errorf("stored %s", got)
			}
			if got := state(t, s); got != trial.Reverted || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
				t.Errorf("the change is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
			}
		})
	}
}

// refusing is an API that fails to return a DaemonSet once, at the nth time: on trial, the run notes its state first.
type refusing struct {
	cluster.Cluster
	name string
	nth  int
	err  error
}

func (r *refusing) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if _, is := obj.(*appsv1.DaemonSet); is && obj.GetName() == r.name {
		if r.nth--; r.nth == 0 {
			return false, r.err
		}
	}
	return r.Cluster.Get(ctx, obj)
}

// TestChangedMeanwhile: a run doesn't overwrite a configuration it has never seen, and puts its node back.
func TestChangedMeanwhile(t *testing.T) {
	for name, at := range map[string]string{"before it begins": "prepare", "before it's stored": "upload-config"} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			before := files(t, s)
			r := change(t, s)
			workflow := r.Phases()
			i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == at })
			play := workflow[i].Run
			workflow[i].Run = func(ctx context.Context, env *step.Env) error {
				r.Stored[manifests.KubeletConfigMap] = "another"
				return play(ctx, env)
			}
			err := step.Run(t.Context(), s.Env, workflow, step.Options{})
			fact.Error(t, err, "kube-system/kubelet-config")
			if diff := cmp.Diff(before, files(t, s)); diff != "" || s.Holder(t) != "" {
				t.Errorf("%s holds the Lease; files:\n%s", s.Holder(t), diff)
			}
		})
	}
}

// TestUnprovable: nothing stops, and nobody's turn is taken, if the API server answers its probe only with credentials.
func TestUnprovable(t *testing.T) {
	s := live(t)
	before := files(t, s)
	s.FakeHost.On.Fetch = func(_ context.Context, p host.Probe) ([]byte, error) {
		return nil, &host.ProbeError{URL: p.URL, Status: 401}
	}
	for _, change := range []func(*testing.T, *phasetest.Stage) error{run, toStored} {
		fact.Error(t, change(t, s), fault.ComponentProbe, "kube-apiserver")
		if diff := cmp.Diff(before, files(t, s)); diff != "" || len(s.FakeHost.Jobs) > 0 || s.Holder(t) != "" || state(t, s) != "" {
			t.Errorf("did %q; %q holds the Lease; files:\n%s", s.FakeHost.Jobs, s.Holder(t), diff)
		}
	}
}

// TestInterrupted: a change that was interrupted on trial is put back, even if it has broken the API.
func TestInterrupted(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("the API is away: %t", away), func(t *testing.T) {
			s := live(t)
			before := files(t, s)
			r := change(t, s)
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			workflow := r.Phases()
			i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == "kubelet-config" })
			workflow[i].Run = func(context.Context, *step.Env) error { kill(); return ctx.Err() } // without a way back, as a killed process
			if err := step.Run(ctx, s.Env, workflow, step.Options{}); err == nil || state(t, s) != trial.OnTrial {
				t.Fatalf("%v; the change is %q", err, state(t, s))
			}
			fact.In(t, s.Get(t, apiServer), "--profiling=false")
			if len(guarded(t, s)) != 2 {
				t.Errorf("only %q put the node back", guarded(t, s))
			}
			s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Away: func() bool { return away && strings.Contains(s.Get(t, apiServer), "--profiling=false") }}
			s.Config.Timeouts.KubernetesAPICall = time.Second
			s.Play(t, FinishAndAwaitAPI()...)
			if diff := cmp.Diff(before, files(t, s)); diff != "" {
				t.Errorf("files:\n%s", diff)
			}
			if again, err := Unfinished(s.Env); again != nil || err != nil || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
				t.Errorf("%v, %v, %q holds the Lease, and there are still %q", again, err, s.Holder(t), guarded(t, s))
			}
			s.Cluster = s.API
			phasetest.Fatal(t, run(t, s))
			isAfter(t, s)
		})
	}
}

// TestFilesGoBack: after a reboot, the files are back before the kubelet starts, and the rest is still to do.
func TestFilesGoBack(t *testing.T) {
	s := live(t)
	before := files(t, s)
	begin(t, s, apiServer, settings, serverCert, "/etc/kubernetes/new.yaml")
	for _, path := range []string{apiServer, settings, serverCert, "/etc/kubernetes/new.yaml"} {
		s.Put(t, path, "changed")
	}
	s.FakeHost.Jobs = nil
	s.Play(t, RestoreFiles()...)
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
	if _, err := s.Host.Lstat("/etc/kubernetes/new.yaml"); err == nil || state(t, s) != trial.Reverting || len(s.FakeHost.Orders()) > 0 {
		t.Errorf("the new file: %v; the change is %q; orders %q", err, state(t, s), s.FakeHost.Orders())
	}
}

// TestClockWasAhead: the newest change is found, even if an earlier one has a later time.
func TestClockWasAhead(t *testing.T) {
	s := live(t)
	earlier := begin(t, s, settings)
	phasetest.Fatal(t, earlier.Set(s.Env, trial.Completed))
	const tomorrow = "/etc/kubernetes/tmp/slipway-reconfigure-2199-01-01-00-00-00"
	phasetest.Fatal(t, os.Rename(s.Root+earlier.Dir(), s.Root+tomorrow))
	s.Put(t, tomorrow+"/change.yaml", "began: 2199-01-01T00:00:00Z\nstate: counts\nfiles: []\n")
	record := begin(t, s, settings)
	interrupted, err := Unfinished(s.Env)
	if err != nil || interrupted == nil || interrupted.Dir() != record.Dir() {
		t.Errorf("%+v, %v; want %s", interrupted, err, record.Dir())
	}
	phasetest.Fatal(t, record.Set(s.Env, trial.Reverted))
	phasetest.Fatal(t, run(t, s))
	cm := node.ConfigMap("kubelet-config")
	_, err = s.API.Get(t.Context(), cm)
	phasetest.Fatal(t, err)
	if at, err := time.Parse(time.RFC3339, cm.Annotations[edits.ChangedByOperator]); err != nil || at.After(time.Now()) {
		t.Errorf("the configuration is of %v, %v", at, err)
	}
}

// TestKeepsEdits: the run ends before it changes anything, with the patch that keeps the edit. With the patch, the edit stays.
func TestKeepsEdits(t *testing.T) {
	s := live(t)
	s.EditPod(t, manifests.APIServerName, "cpu: 250m", "cpu: 300m")
	s.Put(t, settings, s.Get(t, settings)+"podPidsLimit: 77\n")
	before := files(t, s)
	err := run(t, s)
	fact.Error(t, err, "StaticPodEdits", "KubeletConfigEdits", "kube-apiserver0+strategic.yaml", "cpu: 300m", "kubeletconfiguration0+merge.yaml", "podPidsLimit: 77")
	if diff := cmp.Diff(before, files(t, s)); diff != "" || state(t, s) != "" {
		t.Errorf("files:\n%s", diff)
	}
	s.Put(t, "/patches/kube-apiserver0+strategic.yaml", "spec: {containers: [{name: kube-apiserver, resources: {requests: {cpu: 300m}}}]}\n")
	s.Put(t, "/patches/kubeletconfiguration0+merge.yaml", "podPidsLimit: 77\n")
	r := change(t, s)
	s.Config = s.Config.With(func(n *config.Node) { n.PatchesDir = "/patches" })
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, r.Phases(), step.Options{}))
	fact.In(t, s.Get(t, apiServer), "cpu: 300m", "--profiling=false")
	fact.In(t, s.Get(t, settings), "podPidsLimit: 77", "maxPods: 55")
}

// TestUnfinishedUpgrade: a change doesn't take a control plane to another version.
func TestUnfinishedUpgrade(t *testing.T) {
	s := live(t)
	s.EditPod(t, manifests.APIServerName, "kube-apiserver:v1.37.2", "kube-apiserver:v1.37.3")
	before := files(t, s)
	fact.Error(t, run(t, s), "UnfinishedUpgrade", "v1.37.3", "v1.37.2")
	if diff := cmp.Diff(before, files(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
}

func TestSameRelease(t *testing.T) {
	for _, tt := range []struct {
		runs, wanted string
		want         bool
	}{
		{"v1.37.2", "v1.37.2", true},
		{"v1.37.2-vmware.1", "v1.37.2", true},
		{"v1.37.2+vmware.1", "v1.37.2", true},
		{"v1.37.3-vmware.1", "v1.37.2", false},
		{"v1.36.2", "v1.37.2", false},
		{"v1.37.0-rc.1", "v1.37.0", false},
		{"v1.37.0", "v1.37.0-rc.1", false},
		{"v1.37.0-rc.1", "v1.37.0-rc.1", true},
	} {
		if got := sameRelease(tt.runs, tt.wanted); got != tt.want {
			t.Errorf("%s and %s: %v", tt.runs, tt.wanted, got)
		}
	}
}

// TestPlan: a plan has all steps and what they cause on each node, and changes nothing.
func TestPlan(t *testing.T) {
	s := live(t)
	stamps := phasetest.Stamps(t, s.Root)
	r := change(t, s)
	planned, steps := inPlan(s, phasetest.TurnsAPI{Cluster: s.API, Known: []corev1.Node{
		named("cp-1", map[string]string{cluster.LabelControlPlane: ""}), named("worker-1", nil),
	}})
	said := &planning.Plan{Form: "json"}
	planned.UI = planning.UI{UI: s.UI, Plan: said}
	s.Done = nil
	phasetest.Fatal(t, step.Run(t.Context(), planned, r.Phases(), step.Options{Serial: true}))
	if diff := cmp.Diff(stamps, phasetest.Stamps(t, s.Root)); diff != "" || len(s.Done) > 0 {
		t.Errorf("the plan did %q:\n%s", s.Done, diff)
	}
	last, err := filepath.Glob(s.Root + "/etc/kubernetes/tmp/slipway-reconfigure-*")
	if err != nil || len(last) > 0 {
		t.Errorf("%q, %v", last, err)
	}
	var document bytes.Buffer
	phasetest.Fatal(t, said.Write(&document))
	phasetest.Shows(t, "reconfigure-plan", withoutTimes(steps.String())+document.String())
}

func named(name string, labels map[string]string) corev1.Node {
	n := cluster.NewNode(name)
	n.Labels = labels
	return *n
}

// inPlan is the stage's environment in a plan, with the steps that it records.
func inPlan(s *phasetest.Stage, api cluster.Cluster) (*step.Env, *strings.Builder) {
	var steps strings.Builder
	planned := *s.Env
	planned.Host = plan.NewOverlay(s.FakeHost, func(a host.Action) { steps.WriteString(a.String() + "\n") })
	planned.Cluster = cluster.NewPlan(func(a cluster.Action) {
		steps.WriteString(strings.Join(strings.Fields(string(a.Verb)+" "+a.Kind+" "+a.Name), " ") + "\n")
	}, api)
	planned.Etcd = etcd.NewPlan(func(etcd.Action) {}, etcd.Member{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer})
	return &planned, &steps
}

// withoutTimes replaces the time in the record's path.
func withoutTimes(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if before, after, found := strings.Cut(line, "slipway-reconfigure-"); found {
			line = before + "slipway-reconfigure-TIME" + after[len("2006-01-02-15-04-05"):]
		}
		out = append(out, line)
	}
	return strings.Join(out, "")
}
