// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const (
	kubeletSettingsIn = "/var/lib/kubelet/config.yaml"
	kubeletFlagsIn    = "/var/lib/kubelet/kubeadm-flags.env"
)

// append edits a file in place.
func (s *stage) append(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.root, path), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

const apiServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// TestInitKeepsEditedFiles: if the cluster already has the requested configuration, a file that differs was edited.
// The same init reports this once for each file, without secrets, and changes nothing. The command of a single phase
// writes the configuration.
func TestInitKeepsEditedFiles(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.play(t, filePhases()...)
	s.play(t, uploadConfig())
	s.append(t, apiServerManifest, "# --encryption-provider-config=/etc/enc.yaml\n# token: abcdef.0123456789abcdef\n")
	s.append(t, kubeletSettingsIn, "maxPods: 17\n")
	s.put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-labels=a=b\"\n")
	before, jobs := stamps(t, s.root), len(s.host.Jobs)

	stored := storedCompares(t.Context(), s.Env)
	if found := differences(s.Env, stored); !stored.same || len(found) > 0 {
		t.Fatalf("init refuses the edits: %v %q", stored, found)
	}
	wanted, err := wantedManifests(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	acceptEdited(s.Env, wanted)
	if !strings.Contains(string(wanted[apiServerManifest]), "encryption-provider-config") {
		t.Error("init refuses the edited manifest")
	}
	s.Again = true
	s.said.Reset()
	s.play(t, filePhases()...)
	if diff := cmp.Diff(before, stamps(t, s.root)); diff != "" || len(s.host.Jobs) != jobs {
		t.Errorf("something was done: %v\n%s", s.host.Jobs[jobs:], diff)
	}
	s.saidOnce(t, line{"keeping " + apiServerManifest, ": # --encryption-provider-config"}, line{"keeping " + kubeletSettingsIn, ": maxPods: 17\n"},
		line{"keeping " + kubeletFlagsIn}, line{"`slipway init` with --diff", "`slipway init phase control-plane apiserver`"})
	fact.In(t, after(t, s.said.String(), "keeping "+kubeletSettingsIn), "[kubelet-start] [WARNING]", "`slipway init` with --diff", "`slipway init phase kubelet-start`")
	if strings.Contains(s.said.String(), "0123456789abcdef") {
		t.Errorf("the output has a secret:\n%s", s.said.String())
	}
	s.showsRun(t, "init-again-files", filePhases()...)

	s.Again = false
	s.said.Reset()
	s.play(t, kubeletStart(), controlPlane())
	s.saidOnce(t, line{"Writing " + apiServerManifest, ": # --encryption"}, line{"Writing " + kubeletSettingsIn, ": maxPods: 17"})
	for _, path := range []string{apiServerManifest, kubeletSettingsIn, kubeletFlagsIn} {
		if text := s.get(t, path); strings.Contains(text, "17") || strings.Contains(text, "a=b") || strings.Contains(text, "encryption") {
			t.Errorf("the phase's own command did not write %s:\n%s", path, text)
		}
	}
}

// TestInitRefusesWhatItCannotTell: while the API server does not answer, a file that differs may belong to another
// configuration.
func TestInitRefusesWhatItCannotTell(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, filePhases()...)
	s.append(t, kubeletSettingsIn, "maxPods: 17\n")
	s.host.On.Probe = func(context.Context, host.Probe) error { return &host.ProbeError{} }
	stored := storedCompares(t.Context(), s.Env)
	got := faultText(differences(s.Env, stored))
	if stored.same {
		t.Error("the cluster is said to have this configuration")
	}
	fact.In(t, got, kubeletSettingsIn, ": maxPods: 17", "edit stays")
}

// TestJoinKeepsEditedFiles: a node that has joined keeps its files, even after its certificate has expired. A node
// that has only begun to join keeps what was edited, and gets the other settings.
func TestJoinKeepsEditedFiles(t *testing.T) {
	for name, until := range map[string]time.Duration{"a member": time.Hour, "with an expired certificate": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := newJoinStage(t)
			s.joined(t, time.Now().Add(until))
			s.host.Jobs = s.host.Jobs[:0]
			s.append(t, kubeletSettingsIn, "maxPods: 18\n")
			s.put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\"\n")
			settings, flags := s.get(t, kubeletSettingsIn), s.get(t, kubeletFlagsIn)
			if !thisnode.HasBegun(s.host, s.Config) {
				t.Fatal("the host is not recognized as a node")
			}
			s.Again = true
			s.said.Reset()
			s.play(t, kubeletStartJoin())
			if s.get(t, kubeletSettingsIn) != settings || s.get(t, kubeletFlagsIn) != flags {
				t.Error("an edited file was reverted")
			}
			s.saidOnce(t, line{"keeping " + kubeletSettingsIn, ": maxPods: 18\n"}, line{"keeping " + kubeletFlagsIn, ": KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\""})
			fact.In(t, after(t, s.said.String(), "keeping "+kubeletSettingsIn), "[kubelet-start] [WARNING]", "`slipway join` with --diff", "`slipway join phase kubelet-start`")
		})
	}
}

// joined makes the host a node whose certificate is valid until the given time.
func (s *joinStage) joined(t *testing.T, until time.Time) {
	t.Helper()
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin())
	s.bootstrapped(t, s.ca, s.Config.Name, until)
}

func TestHalfJoinedKeepsEdits(t *testing.T) {
	s := newJoinStage(t)
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin())
	if !s.host.Made("/etc/kubernetes/bootstrap-kubelet.conf") {
		t.Skip("this file system, or this user, keeps no notes of what was made")
	}
	s.put(t, kubeletFlagsIn, "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9\"\n") // edited
	s.Config.Kubelet.MaxPods = 19                                              // other settings
	if s.Earlier = LookBack(t.Context(), s.Env); !s.Again {
		t.Fatal("the host is not recognized as one that has begun to join")
	}
	s.play(t, kubeletStartJoin())
	if text := s.get(t, kubeletFlagsIn); !strings.Contains(text, "--node-ip=192.0.2.9") {
		t.Errorf("an edit was reverted:\n%s", text)
	}
	if text := s.get(t, kubeletSettingsIn); !strings.Contains(text, "maxPods: 19") {
		t.Errorf("the other settings were not written:\n%s", text)
	}
}

// TestJoinedControlPlaneKeepsManifests, which its administrator has edited.
func TestJoinedControlPlaneKeepsManifests(t *testing.T) {
	s := preparedPlane(t)
	ca, err := certs.ParsePair(s.shared["ca.crt"], s.shared["ca.key"])
	if err != nil {
		t.Fatal(err)
	}
	s.bootstrapped(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "cp-2", time.Now().Add(time.Hour))
	s.append(t, apiServerManifest, "# --encryption-provider-config=/etc/enc.yaml\n")
	before := s.get(t, apiServerManifest)
	s.Earlier = LookBack(t.Context(), s.Env)
	s.said.Reset()
	s.play(t, joinStaticPods())
	if s.get(t, apiServerManifest) != before {
		t.Error("the edited manifest was reverted")
	}
	s.saidOnce(t, line{"keeping " + apiServerManifest, ": # --encryption-provider-config=/etc/enc.yaml\n"},
		line{"[WARNING]", "`slipway join` with --diff", "`slipway join phase control-plane-prepare control-plane`\n"})
}
