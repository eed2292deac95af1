// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	kubeletSettingsIn = "/var/lib/kubelet/config.yaml"
	kubeletFlagsIn    = "/var/lib/kubelet/kubeadm-flags.env"
)

// TestInitKeepsEditedFiles: if the cluster already has the requested configuration, differences in a file are edits. The same
// init reports them once per file, without secrets, and changes nothing. A single phase's command writes the configuration.
func TestInitKeepsEditedFiles(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Play(t, filePhases()...)
	s.Play(t, node.UploadConfig())
	s.Append(t, phasetest.APIServerManifest, "# --encryption-provider-config=/etc/enc.yaml\n# token: abcdef.0123456789abcdef\n")
	s.Append(t, kubeletSettingsIn, "maxPods: 17\n")
	s.Put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-labels=a=b\"\n")
	before, jobs := phasetest.Stamps(t, s.Root), len(s.FakeHost.Jobs)

	stored := storedCompares(t.Context(), s.Env)
	if found := differences(s.Env, stored); !stored.same || len(found) > 0 {
		t.Fatalf("init refuses the edits: %v %q", stored, found)
	}
	wanted, err := wantedManifests(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	acceptEdited(s.Env, wanted)
	if !strings.Contains(string(wanted[phasetest.APIServerManifest]), "encryption-provider-config") {
		t.Error("init refuses the edited manifest")
	}
	s.Rerun = true
	s.Said.Reset()
	s.Play(t, filePhases()...)
	if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" || len(s.FakeHost.Jobs) != jobs {
		t.Errorf("something was done: %v\n%s", s.FakeHost.Jobs[jobs:], diff)
	}
	s.SaidOnce(t, phasetest.Line{"keeping " + phasetest.APIServerManifest, ": # --encryption-provider-config"}, phasetest.Line{"keeping " + kubeletSettingsIn, ": maxPods: 17\n"},
		phasetest.Line{"keeping " + kubeletFlagsIn}, phasetest.Line{"--diff", "`slipway init phase control-plane apiserver`", "--config"})
	fact.In(t, phasetest.After(t, s.Said.String(), "keeping "+kubeletSettingsIn), "[kubelet-start] [WARNING]", "--diff", "`slipway init phase kubelet-start`")
	if strings.Contains(s.Said.String(), "0123456789abcdef") {
		t.Errorf("the output has a secret:\n%s", s.Said.String())
	}
	s.ShowsRun(t, "init-again-files", filePhases()...)

	s.Rerun = false
	s.Said.Reset()
	s.Play(t, kubelet.Start(), controlPlane())
	s.SaidOnce(t, phasetest.Line{"Writing " + phasetest.APIServerManifest, ": # --encryption"}, phasetest.Line{"Writing " + kubeletSettingsIn, ": maxPods: 17"})
	for _, path := range []string{phasetest.APIServerManifest, kubeletSettingsIn, kubeletFlagsIn} {
		if text := s.Get(t, path); strings.Contains(text, "17") || strings.Contains(text, "a=b") || strings.Contains(text, "encryption") {
			t.Errorf("the phase's own command did not write %s:\n%s", path, text)
		}
	}
}

// TestInitRefusesWhatItCannotTell: while the API server doesn't answer, a file that differs may belong to another configuration.
func TestInitRefusesWhatItCannotTell(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, filePhases()...)
	s.Append(t, kubeletSettingsIn, "maxPods: 17\n")
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return &host.ProbeError{} }
	stored := storedCompares(t.Context(), s.Env)
	got := faultText(differences(s.Env, stored))
	if stored.same {
		t.Error("the cluster is said to have this configuration")
	}
	fact.In(t, got, kubeletSettingsIn, ": maxPods: 17", "edit stays")
}

// TestInitAwaitsABusyAPIServer: an API server that isn't ready, or answers too late, is asked again before edits are refused; one
// that stays so is given the time of an API call. An unfinished init doesn't need the answer, and doesn't wait.
func TestInitAwaitsABusyAPIServer(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, filePhases()...)
	s.Play(t, node.UploadConfig())
	s.Append(t, kubeletSettingsIn, "maxPods: 17\n")
	notReady, forbids, anonymous := &host.ProbeError{Status: 500}, &host.ProbeError{Status: 403}, &host.ProbeError{Status: 401}
	for _, tt := range []struct {
		name       string
		answers    []error // the last one stays
		unfinished bool
		same       bool
		waited     time.Duration
	}{
		{"it becomes ready", []error{notReady, context.DeadlineExceeded, forbids, nil}, false, true, 2 * time.Second},
		{"it takes no anonymous requests", []error{anonymous}, false, true, 0},
		{"it stays busy", []error{notReady}, false, false, s.Config.Timeouts.KubernetesAPICall},
		{"nobody listens", []error{syscall.ECONNREFUSED}, false, false, 0},
		{"an unfinished init", []error{notReady}, true, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.Said.Reset()
				s.Unfinished = tt.unfinished
				s.FakeHost.On.Probe = func(context.Context, host.Probe) error {
					answer := tt.answers[0]
					tt.answers = tt.answers[min(1, len(tt.answers)-1):]
					return answer
				}
				start := time.Now()
				stored := storedCompares(t.Context(), s.Env)
				if waited := time.Since(start); stored.same != tt.same || waited.Round(time.Second) != tt.waited {
					t.Errorf("the same configuration: %t, after %s", stored.same, waited)
				}
				if said := strings.Contains(s.Said.String(), s.Config.Timeouts.KubernetesAPICall.String()); said != (tt.waited > 0) {
					t.Errorf("said %q", s.Said.String())
				}
			})
		})
	}
}

// TestJoinKeepsEditedFiles: a joined node keeps its files, even after its certificate has expired. A node that has only begun to
// join keeps edits, too, and gets the other settings.
func TestJoinKeepsEditedFiles(t *testing.T) {
	for name, until := range map[string]time.Duration{"a member": time.Hour, "with an expired certificate": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			joined(t, s, time.Now().Add(until))
			s.FakeHost.Jobs = s.FakeHost.Jobs[:0]
			s.Append(t, kubeletSettingsIn, "maxPods: 18\n")
			s.Put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\"\n")
			settings, flags := s.Get(t, kubeletSettingsIn), s.Get(t, kubeletFlagsIn)
			if !thisnode.HasBegun(s.FakeHost, s.Config) {
				t.Fatal("the host is not recognized as a node")
			}
			s.Rerun = true
			s.Said.Reset()
			s.Play(t, kubelet.StartJoin())
			if s.Get(t, kubeletSettingsIn) != settings || s.Get(t, kubeletFlagsIn) != flags {
				t.Error("an edited file was reverted")
			}
			s.SaidOnce(t, phasetest.Line{"keeping " + kubeletSettingsIn, ": maxPods: 18\n"}, phasetest.Line{"keeping " + kubeletFlagsIn, ": KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\""})
			fact.In(t, phasetest.After(t, s.Said.String(), "keeping "+kubeletSettingsIn), "[kubelet-start] [WARNING]", "--diff", "`slipway join phase kubelet-start`")
		})
	}
}

// joined makes the host a node whose certificate is valid until the given time.
func joined(t *testing.T, s *phasetest.JoinStage, until time.Time) {
	t.Helper()
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.Play(t, kubelet.StartJoin())
	s.Bootstrapped(t, s.CA, s.Config.Name, until)
}

func TestHalfJoinedKeepsEdits(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.Play(t, kubelet.StartJoin())
	if !s.FakeHost.CreatedBySlipway("/etc/kubernetes/bootstrap-kubelet.conf") {
		t.Skip("this file system, or this user, keeps no notes of what was made")
	}
	s.Put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\"\n") // edited
	s.Config.Kubelet.MaxPods = 19                                              // other settings
	if s.Earlier = DetectEarlierRun(t.Context(), s.Env); !s.Rerun {
		t.Fatal("the host is not recognized as one that has begun to join")
	}
	s.Play(t, kubelet.StartJoin())
	if text := s.Get(t, kubeletFlagsIn); !strings.Contains(text, "--node-ip=192.0.2.9") {
		t.Errorf("an edit was reverted:\n%s", text)
	}
	if text := s.Get(t, kubeletSettingsIn); !strings.Contains(text, "maxPods: 19") {
		t.Errorf("the other settings were not written:\n%s", text)
	}
}

// TestJoinedControlPlaneKeepsManifests edited by its administrator.
func TestJoinedControlPlaneKeepsManifests(t *testing.T) {
	s := preparedPlane(t)
	ca, err := certs.ParsePair(s.shared["ca.crt"], s.shared["ca.key"])
	if err != nil {
		t.Fatal(err)
	}
	s.Bootstrapped(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "cp-2", time.Now().Add(time.Hour))
	s.Append(t, phasetest.APIServerManifest, "# --encryption-provider-config=/etc/enc.yaml\n")
	before := s.Get(t, phasetest.APIServerManifest)
	s.Earlier = DetectEarlierRun(t.Context(), s.Env)
	s.Said.Reset()
	s.Play(t, joinStaticPods())
	if s.Get(t, phasetest.APIServerManifest) != before {
		t.Error("the edited manifest was reverted")
	}
	s.SaidOnce(t, phasetest.Line{"keeping " + phasetest.APIServerManifest, ": # --encryption-provider-config=/etc/enc.yaml\n"},
		phasetest.Line{"[WARNING]", "--diff", "`slipway join phase control-plane-prepare control-plane`", "(--config)\n"})
}

// TestUploadKeepsUnknown: fields that other versions or users added to the cluster's configuration survive a new upload.
func TestUploadKeepsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		phase     step.Phase
		stored    string
		keeps     []string
		says      phasetest.Line
	}{
		{"kubeadm-config", "ClusterConfiguration", node.UploadConfig(), fixture.ClusterConfiguration + "apiServer: {timeoutForControlPlane: 4m0s}\nclusterName: old\nfutureField: {a: [1, 'x: y']}\nfeatureGates: {EtcdLearnerMode: true}\n",
			[]string{"clusterName: kubernetes\n", "futureField:\n  a:\n  - 1\n  - 'x: y'\n", "apiServer:\n  timeoutForControlPlane: 4m0s\n", "featureGates:\n  EtcdLearnerMode: true\n"},
			phasetest.Line{"[WARNING]", "ConfigMap kube-system/kubeadm-config: keeping fields", ": apiServer.timeoutForControlPlane, futureField"}},
		{"kubelet-config", "kubelet", node.UploadConfig(), fixture.KubeletConfiguration + "futureField: 1\nlogging: {futureField: 12345678901234567890}\n",
			[]string{"\nfutureField: 1\n", "  futureField: 12345678901234567890\n"},
			phasetest.Line{"[WARNING]", "ConfigMap kube-system/kubelet-config: keeping fields", ": futureField, logging.futureField"}},
		{"kube-proxy", "config.conf", addon.Install(), "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nipvs: {futureField: a}\n",
			[]string{"  futureField: a\n"},
			phasetest.Line{"[WARNING]", "ConfigMap kube-system/kube-proxy: keeping fields", ": ipvs.futureField"}},
		{"kubelet-config", "kubelet", node.UploadConfig(), "broken: [", []string{"cgroupDriver: systemd"},
			phasetest.Line{"[WARNING]", "unknown fields", "ConfigMap kube-system/kubelet-config:"}},
	} {
		t.Run(tt.name+" "+strings.Join(tt.says, " "), func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			if err := s.Cluster.Ensure(t.Context(), fixture.ConfigMap(tt.name, tt.key, tt.stored)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s.Said.Reset()
				s.Play(t, tt.phase)
			}
			text, err := cluster.ConfigMapText(t.Context(), s.Cluster, metav1.NamespaceSystem, tt.name, tt.key)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.keeps {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %q:\n%s", want, text)
				}
			}
			broken := strings.HasPrefix(tt.stored, "broken") // the first run replaced it
			if n := tt.says.Count(t, s.Said.String()); n > 1 || (n == 0) != broken {
				t.Errorf("said %d times:\n%s", n, s.Said.String())
			}
		})
	}
}

// TestJoinOldCluster: a worker joins a cluster whose configuration has fields this version doesn't know. Its kubelet gets all its
// settings.
func TestJoinOldCluster(t *testing.T) {
	for name, head := range map[string]string{"v1beta4": fixture.ClusterConfiguration, "v1beta3": strings.Replace(fixture.ClusterConfiguration, "v1beta4", "v1beta3", 1)} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t,
				fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", head+"useHyperKubeImage: true\nfeatureGates: {EtcdLearnerMode: true, PublicKeysECDSA: false}\n"),
				cluster.Object(fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"futureField: {a: true}\n")))
			if err := s.Discover(t); err != nil {
				t.Fatal(err)
			}
			s.Play(t, kubelet.StartJoin())
			conf := s.Get(t, "/var/lib/kubelet/config.yaml")
			if !strings.Contains(conf, "futureField:\n  a: true\n") || !strings.Contains(conf, "maxPods: 17\n") {
				t.Errorf("config.yaml:\n%s", conf)
			}
			want := [][]string{{"ConfigMap kube-system/kubeadm-config: keeping fields", ": useHyperKubeImage\n"},
				{"ConfigMap kube-system/kubeadm-config:", "feature gates: EtcdLearnerMode, PublicKeysECDSA\n"},
				{"ConfigMap kube-system/kubelet-config: keeping fields", ": futureField\n"}}
			if len(s.Warned) != len(want) {
				t.Fatalf("warned %q", s.Warned)
			}
			for i, warning := range s.Warned {
				fact.In(t, warning+"\n", want[i]...)
			}
		})
	}
}
