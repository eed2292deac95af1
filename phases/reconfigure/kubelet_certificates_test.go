// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestKubeletCertificates: an API server verifies kubelets only once each has a certificate that it accepts. Later, the cluster's
// kubelets aren't asked.
func TestKubeletCertificates(t *testing.T) {
	s := live(t)
	worker := cluster.NewNode("worker-1")
	worker.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "worker-1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.21"}}
	worker.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Known: []corev1.Node{*worker}}
	var asked []string
	var mu sync.Mutex
	refused := errors.New("x509: certificate signed by unknown authority")
	s.FakeHost.On.Date = func(_ context.Context, p host.Probe) (time.Time, error) {
		mu.Lock()
		defer mu.Unlock()
		if string(p.CA) != s.Get(t, "/etc/kubernetes/pki/ca.crt") {
			t.Errorf("%s is verified with another CA", p.URL)
		}
		asked = append(asked, p.URL)
		return time.Time{}, refused
	}
	phasetest.Fatal(t, harden(t, s, profile.CIS))
	if len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
	fact.Error(t, harden(t, s, profile.CISStrict), certificatesCheck, "worker-1", "unknown authority", "`slipway reconfigure node`")
	if strings.Contains(s.Get(t, apiServer), profile.KubeletAuthorityFlag) {
		t.Error("it has changed the API server")
	}
	refused = nil
	phasetest.Fatal(t, harden(t, s, profile.CISStrict))
	fact.In(t, s.Get(t, apiServer), "--"+profile.KubeletAuthorityFlag+"=/etc/kubernetes/pki/ca.crt")
	fact.In(t, strings.Join(asked, " "), "https://192.0.2.21:10250/")
	asked, refused = nil, errors.New("away")
	phasetest.Fatal(t, harden(t, s, profile.CISStrict))
	if len(asked) > 0 {
		t.Errorf("asked %q again", asked)
	}
}
