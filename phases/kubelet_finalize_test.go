// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const (
	kubeletConf = "/etc/kubernetes/kubelet.conf"
	kubeletPEM  = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// rotatedPEM is a client certificate that a kubelet got for its node.
func rotatedPEM(t *testing.T, node string, until time.Time) string {
	t.Helper()
	return string(certs.EncodeCerts(fixture.Signed(t, fixture.Pair{}, "system:node:"+node, until).Cert))
}

// rotated writes a client certificate as the kubelet of a node does.
func (s *stage) rotated(t *testing.T, path, node string, until time.Time) {
	t.Helper()
	s.put(t, path, rotatedPEM(t, node, until))
}

func TestKubeletFinalize(t *testing.T) {
	failure := func(facts ...string) []string {
		return append([]string{"client certificate", "`journalctl -u kubelet`", kubeletPEM}, facts...)
	}
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name string
		make func(t *testing.T, s *stage)
		jobs []string
		err  []string
	}{
		{name: "the certificate is there", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-1", later) },
			jobs: []string{"write kubelet.conf", "restart kubelet.service"}},
		{name: "the certificate does not come", err: failure("not exist", "deadline exceeded")},
		{name: "one that has expired", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-1", time.Now().Add(-time.Minute)) },
			err: failure("expired")},
		{name: "one of another node", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-9", later) },
			err: failure(`node "cp-9", not "cp-1"`, "deadline exceeded")},
		{name: "none at all", make: func(t *testing.T, s *stage) { s.put(t, kubeletPEM, "x") }, err: failure("PEM form")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
			s.play(t, certsCA(), kubeconfigs())
			before := s.get(t, kubeletConf)
			if tt.make != nil {
				tt.make(t, s)
			}
			s.host.Jobs = nil
			err := runEnableClientCertRotation(t.Context(), s.Env)
			fact.Error(t, err, tt.err...)
			if diff := cmp.Diff(tt.jobs, s.host.Jobs); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			after := s.get(t, kubeletConf)
			changed := strings.Contains(after, "client-certificate: "+kubeletPEM) && !strings.Contains(after, "client-key-data")
			if changed != (tt.err == nil) || !changed && after != before {
				t.Errorf("kubelet.conf changed: %v", changed)
			}
			if !changed {
				return
			}
			s.host.Jobs = nil
			s.play(t, kubeletFinalize())
			if len(s.host.Jobs) > 0 || s.get(t, kubeletConf) != after {
				t.Errorf("a second run did %v", s.host.Jobs)
			}
			s.host.Has.Time = later.Add(time.Hour)
			err = runEnableClientCertRotation(t.Context(), s.Env)
			fact.Error(t, err, kubeletPEM+":", "expired")
			fact.In(t, fault.Remedy(err), "`slipway certs renew all --restart`")
		})
	}
}

func TestKubeletFinalizeFaults(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	err := runEnableClientCertRotation(t.Context(), s.Env)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %q", message(err))
	}
	fact.Error(t, err, kubeletConf)
	s.put(t, kubeletConf, "client-key-data: hush")
	err = runEnableClientCertRotation(t.Context(), s.Env)
	fact.Error(t, err, kubeletConf+":", "kubeconfig")
	fact.NotIn(t, message(err), "hush")
}

// TestKubeletFinalizeWithoutInit asks the user to restart the kubelet.
func TestKubeletFinalizeWithoutInit(t *testing.T) {
	s := newStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
	s.play(t, certsCA(), kubeconfigs())
	s.rotated(t, kubeletPEM, "cp-1", time.Now().Add(time.Hour))
	s.host.Fail["restart kubelet.service"] = host.ErrNoSystemd
	s.host.Fail["Unit"] = host.ErrNoSystemd
	s.play(t, kubeletFinalize())
	s.saidOnce(t, line{"[WARNING]", "not restarted"})
	fact.In(t, after(t, s.said.String(), "not restarted"), "[kubelet-finalize] [WARNING]   restart it")
	fact.In(t, s.get(t, kubeletConf), kubeletPEM)
	s.play(t, kubeletFinalize())
	s.saidOnce(t, line{"[WARNING]", "cannot tell", kubeletConf})
}

// TestKubeletFinalizeHeedsFlags: the last flag that names a certificate directory counts. If nothing rotates the
// certificates, nothing is waited for.
func TestKubeletFinalizeHeedsFlags(t *testing.T) {
	const patched = fixture.InitDocument + "patches: {directory: /patches}\n" + fixture.ClusterDocument
	const off, on = "{name: rotate-certificates, value: 'false'}", "{name: rotate-certificates, value: 'true'}"
	for _, tt := range []struct{ name, documents, patch, pem string }{
		{"another directory", withKubeletFlags("{name: cert-dir, value: /a}, {name: cert-dir, value: /other/pki}"), "", "/other/pki/kubelet-client-current.pem"},
		{"off by flag", withKubeletFlags(off), "", ""},
		{"on by a later flag", withKubeletFlags(off + ", " + on), "", kubeletPEM},
		{"off by patch", patched, "rotateCertificates: false", ""},
		{"a patch that says nothing of it", patched, "maxPods: 17", kubeletPEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := waitStage(t, tt.documents)
			s.Config.Timeouts.TLSBootstrap = 150 * time.Millisecond
			s.put(t, "/patches/kubeletconfiguration.yaml", tt.patch)
			s.play(t, certsCA(), kubeconfigs(), kubeletStart())
			s.host.Jobs = nil
			if tt.pem != "" {
				s.rotated(t, tt.pem, "cp-1", time.Now().Add(time.Hour))
			}
			s.play(t, kubeletFinalize())
			conf := s.get(t, kubeletConf)
			if tt.pem == "" {
				if !strings.Contains(conf, "client-key-data") || len(s.host.Jobs) > 0 {
					t.Errorf("jobs %v", s.host.Jobs)
				}
				s.saidOnce(t, line{"Leaving " + kubeletConf, "(rotateCertificates)"})
				return
			}
			if !strings.Contains(conf, "client-certificate: "+tt.pem) {
				t.Errorf("kubelet.conf does not name %s", tt.pem)
			}
		})
	}
}
