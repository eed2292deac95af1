// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	kubeletConf = "/etc/kubernetes/kubelet.conf"
	kubeletPEM  = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

func TestKubeletFinalize(t *testing.T) {
	tests := []struct {
		name string
		pem  bool
		jobs []string
		err  string
	}{
		{name: "the certificate is there", pem: true, jobs: []string{"restart kubelet.service"}},
		{name: "the certificate does not come", err: "the kubelet has no client certificate; `journalctl -u kubelet` tells why: " +
			kubeletPEM + " does not exist yet: context deadline exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, initDocument+shortWaits+clusterDocument)
			s.play(t, certificate("ca", "", ""), kubeconfigs())
			before := s.get(t, kubeletConf)
			if tt.pem {
				s.put(t, kubeletPEM, "pem")
			}
			s.host.jobs = nil
			if err := runEnableClientCertRotation(t.Context(), s.Env); (err == nil) != tt.pem || !strings.HasPrefix(message(err), tt.err) {
				t.Errorf("error %q, want %q", message(err), tt.err)
			}
			if diff := cmp.Diff(tt.jobs, s.host.jobs); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			after := s.get(t, kubeletConf)
			changed := strings.Contains(after, "client-certificate: "+kubeletPEM) && !strings.Contains(after, "client-key-data")
			if changed != tt.pem || !changed && after != before {
				t.Errorf("kubelet.conf changed: %v", changed)
			}
			if !tt.pem {
				return
			}
			s.host.jobs = nil
			s.play(t, kubeletFinalize())
			if len(s.host.jobs) > 0 || s.get(t, kubeletConf) != after {
				t.Errorf("a second run did %v", s.host.jobs)
			}
		})
	}
}

func TestKubeletFinalizeFaults(t *testing.T) {
	s := newStage(t, initDocument+clusterDocument)
	if err := runEnableClientCertRotation(t.Context(), s.Env); !strings.Contains(message(err), "kubelet.conf: no such file") {
		t.Errorf("error %q", message(err))
	}
	s.put(t, kubeletConf, "client-key-data: hush")
	err := runEnableClientCertRotation(t.Context(), s.Env)
	if want := kubeletConf + ": the file is not a kubeconfig"; !strings.HasPrefix(message(err), want) || strings.Contains(message(err), "hush") {
		t.Errorf("error %q, want %q", message(err), want)
	}
}
