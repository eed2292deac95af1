// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestDifferences runs init's file phases and then preflight with another configuration: it names the differences and writes
// nothing.
func TestDifferences(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Play(t, filePhases()...)
	s.Play(t, node.UploadConfig())
	tests := []struct {
		name, init, cluster string
		want                phasetest.Line
	}{
		{"the same", "", "", nil},
		{"another service network", "", "networking: {serviceSubnet: 10.100.0.0/16}\n", phasetest.Line{"/etc/kubernetes/pki/apiserver.crt"}},
		{"another service network, in the cluster", "", "networking: {serviceSubnet: 10.100.0.0/16}\n", phasetest.Line{"ConfigMap kube-system/kubeadm-config", ": serviceSubnet: 10.96.0.0/12;", ": serviceSubnet: 10.100.0.0/16"}},
		{"another service network, for the kubelet", "", "networking: {serviceSubnet: 10.100.0.0/16}\n", phasetest.Line{"/var/lib/kubelet/config.yaml", ": - 10.96.0.10;", ": - 10.100.0.10"}},
		{"a Pod network", "", "networking: {podSubnet: 10.244.0.0/16}\n", phasetest.Line{": podSubnet: 10.244.0.0/16"}},
		{"one more name", "", "apiServer: {certSANs: [api.example.org]}\n", phasetest.Line{"ConfigMap kube-system/kubeadm-config", "api.example.org"}},
		{"one more variable", "", "apiServer: {extraEnvs: [{name: A, value: hush}]}\n", phasetest.Line{"extraEnvs:, - name: A, value: '[redacted]'"}},
		{"another node's name", "cp-2", "", phasetest.Line{"/etc/kubernetes/kubelet.conf"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			init := fixture.InitDocument
			if tt.init != "" {
				init = strings.Replace(init, "name: cp-1", "name: "+tt.init, 1)
			}
			other := phasetest.NewStage(t, init+fixture.ClusterDocument+tt.cluster)
			env := &step.Env{Config: other.Config, Host: s.FakeHost, Cluster: s.API, UI: s.UI}
			env.Earlier = DetectEarlierRun(t.Context(), env)
			before, jobs := phasetest.Stamps(t, s.Root), len(s.FakeHost.Jobs)
			got := faultText(differences(env, storedCompares(t.Context(), env)))
			if (tt.want == nil) != (got == "") || tt.want != nil && tt.want.Count(t, got) == 0 || strings.Contains(got, "hush") {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
			if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" || len(s.FakeHost.Jobs) != jobs {
				t.Errorf("something was done: %v\n%s", s.FakeHost.Jobs[jobs:], diff)
			}
		})
	}
}

// TestDifferencesOfOldClusters: fields only newer or older versions know, and the order and form of the text, don't make another
// configuration.
func TestDifferencesOfOldClusters(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Play(t, filePhases()...)
	if err := s.Cluster.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", `# edited by hand
kind: ClusterConfiguration
apiVersion: kubeadm.k8s.io/v1beta4
encryptionAlgorithm: "ECDSA-P256"
futureField: {a: 1}
featureGates: {EtcdLearnerMode: true}
kubernetesVersion: v1.37.2
`)); err != nil {
		t.Fatal(err)
	}
	if got := differences(s.Env, storedCompares(t.Context(), s.Env)); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// Before there's a control plane, only files that will be kept must match, not an earlier run's files, which are replaced.
func TestDifferencesAtFirst(t *testing.T) {
	for documents, want := range map[string]string{
		"apiServer: {certSANs: [api.example.org]}\n":   "api.example.org",
		"networking: {podSubnet: 10.244.0.0/16}\n":     "",
		"networking: {dnsDomain: other.example.org}\n": "other.example.org",
	} {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		s.Play(t, certificates(), kubeconfigs(), kubelet.Start())
		needsNotes(t, s)
		other := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument+documents)
		other.Host = s.FakeHost
		other.Earlier = DetectEarlierRun(t.Context(), other.Env)
		if got := differences(other.Env, storedCompares(t.Context(), other.Env)); len(got) > 0 {
			t.Errorf("%s: of what an earlier run has made: %q", documents, got)
		}
		const theirs = "/etc/kubernetes/pki/apiserver.crt"
		text := s.Get(t, theirs)
		s.Remove(t, theirs)
		s.Put(t, theirs, text)
		got := faultText(differences(other.Env, storedCompares(t.Context(), other.Env)))
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "kubelet/config.yaml") {
			t.Errorf("%s: got %q, want %q", documents, got, want)
		}
	}
}

// TestLineDifference: the output shows only that a secret differs.
func TestLineDifference(t *testing.T) {
	for _, tt := range []struct {
		have, wanted string
		want         []string
	}{
		{"a\nb\n", "a\nc\n", []string{": b;", ": c"}},
		{"a\nb\n", "b\na\n", []string{"another order"}},
		{"env: [{name: A, value: hush}]\n", "env: [{name: A, value: hash}]\n", []string{"not shown", "environment variables"}},
	} {
		got := ownership.LineDifference([]byte(tt.have), []byte(tt.wanted))
		fact.In(t, got, tt.want...)
		fact.NotIn(t, got, "hush", "hash")
	}
}

func faultText(faults []fault.Finding) string {
	var texts []string
	for _, f := range faults {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, "\n")
}
