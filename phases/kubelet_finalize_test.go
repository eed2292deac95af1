// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
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
	const failure = "the kubelet has no valid client certificate; `journalctl -u kubelet` shows why: " + kubeletPEM
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name string
		make func(t *testing.T, s *stage)
		jobs []string
		err  string
	}{
		{name: "the certificate is there", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-1", later) },
			jobs: []string{"restart kubelet.service"}},
		{name: "the certificate does not come", err: failure + " does not exist yet: context deadline exceeded"},
		{name: "one that has expired", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-1", time.Now().Add(-time.Minute)) },
			err: failure + ": the client certificate expired on "},
		{name: "one of another node", make: func(t *testing.T, s *stage) { s.rotated(t, kubeletPEM, "cp-9", later) },
			err: failure + ` is of node "cp-9", not "cp-1": context deadline exceeded`},
		{name: "none at all", make: func(t *testing.T, s *stage) { s.put(t, kubeletPEM, "x") }, err: failure + ": the file is not in PEM form"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
			s.play(t, certsCA(), kubeconfigs())
			before := s.get(t, kubeletConf)
			if tt.make != nil {
				tt.make(t, s)
			}
			s.host.jobs = nil
			err := runEnableClientCertRotation(t.Context(), s.Env)
			if (err == nil) != (tt.err == "") || !strings.HasPrefix(message(err), tt.err) {
				t.Errorf("error %q, want %q", message(err), tt.err)
			}
			if diff := cmp.Diff(tt.jobs, s.host.jobs); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			after := s.get(t, kubeletConf)
			changed := strings.Contains(after, "client-certificate: "+kubeletPEM) && !strings.Contains(after, "client-key-data")
			if changed != (tt.err == "") || !changed && after != before {
				t.Errorf("kubelet.conf changed: %v", changed)
			}
			if !changed {
				return
			}
			s.host.jobs = nil
			s.play(t, kubeletFinalize())
			if len(s.host.jobs) > 0 || s.get(t, kubeletConf) != after {
				t.Errorf("a second run did %v", s.host.jobs)
			}
			s.host.now = later.Add(time.Hour)
			err = runEnableClientCertRotation(t.Context(), s.Env)
			if !strings.HasPrefix(message(err), kubeletPEM+": the client certificate expired on ") || !strings.Contains(fault.Remedy(err), "certs renew all --restart") {
				t.Errorf("when it has expired: %q", message(err))
			}
		})
	}
}

func TestKubeletFinalizeFaults(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	if err := runEnableClientCertRotation(t.Context(), s.Env); !strings.Contains(message(err), "kubelet.conf: no such file") {
		t.Errorf("error %q", message(err))
	}
	s.put(t, kubeletConf, "client-key-data: hush")
	err := runEnableClientCertRotation(t.Context(), s.Env)
	if want := kubeletConf + ": the file is not a kubeconfig"; !strings.HasPrefix(message(err), want) || strings.Contains(message(err), "hush") {
		t.Errorf("error %q, want %q", message(err), want)
	}
}

// TestKubeletFinalizeWithoutInit asks the user to restart the kubelet.
func TestKubeletFinalizeWithoutInit(t *testing.T) {
	s := newStage(t, fixture.InitDocument+shortWaits+fixture.ClusterDocument)
	s.play(t, certsCA(), kubeconfigs())
	s.rotated(t, kubeletPEM, "cp-1", time.Now().Add(time.Hour))
	s.host.fail = map[string]error{"restart kubelet.service": host.ErrNoSystemd}
	s.host.unit = func() (host.UnitState, error) { return host.UnitState{}, host.ErrNoSystemd }
	s.play(t, kubeletFinalize())
	if said := s.said.String(); !strings.Contains(said, "the kubelet is not restarted\n[kubelet-finalize] [WARNING]   restart it some other way now\n") || !strings.Contains(s.get(t, kubeletConf), kubeletPEM) {
		t.Errorf("said:\n%s", said)
	}
	s.play(t, kubeletFinalize())
	if said := s.said.String(); !strings.Contains(said, "cannot tell whether the kubelet has read "+kubeletConf+" since it was changed") {
		t.Errorf("said the second time:\n%s", said)
	}
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
			s.host.jobs = nil
			if tt.pem != "" {
				s.rotated(t, tt.pem, "cp-1", time.Now().Add(time.Hour))
			}
			s.play(t, kubeletFinalize())
			conf := s.get(t, kubeletConf)
			if tt.pem == "" {
				if !strings.Contains(s.said.String(), "turn certificate rotation off") || !strings.Contains(conf, "client-key-data") || len(s.host.jobs) > 0 {
					t.Errorf("jobs %v; said:\n%s", s.host.jobs, s.said.String())
				}
				return
			}
			if !strings.Contains(conf, "client-certificate: "+tt.pem) {
				t.Errorf("kubelet.conf does not name %s", tt.pem)
			}
		})
	}
}
