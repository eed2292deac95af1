// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func kubeletOf(name, address string) *corev1.Node {
	n := cluster.NewNode(name)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	return n
}

// TestKubeletCertificates: an API server verifies kubelets only once each has a certificate that it accepts. Later, the cluster's
// kubelets aren't asked, unless it gets another CA.
func TestKubeletCertificates(t *testing.T) {
	s := live(t)
	s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Known: []corev1.Node{*kubeletOf("worker-1", "192.0.2.21")}}
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
	const other = "/etc/kubernetes/pki/other-ca.crt"
	s.Put(t, other, s.Get(t, "/etc/kubernetes/pki/ca.crt"))
	s.Config = s.Config.With(func(n *config.Node) {
		args := append(slices.Clone(n.Cluster.APIServer.ExtraArgs), config.Arg{Name: profile.KubeletAuthorityFlag, Value: other})
		n.Cluster.APIServer.ExtraArgs = args
	})
	if found := kubeletCertificates(t.Context(), s.Env); len(found) != 1 || found[0].Severity != fault.Error || len(asked) != 1 {
		t.Errorf("with another CA, asked %q and found %v", asked, found)
	}
}

// TestKubeletCertificatesInPlan: a plan asks no kubelet, and says so once. The plan goes on.
func TestKubeletCertificatesInPlan(t *testing.T) {
	s := live(t)
	api := phasetest.TurnsAPI{Cluster: s.API, Known: []corev1.Node{*kubeletOf("worker-1", "192.0.2.21"), *kubeletOf("worker-2", "192.0.2.22")}}
	l := loaderOn(s)
	l.API = api
	c, _, err := l.Profile(t.Context(), profile.CISStrict, nil)
	phasetest.Fatal(t, err)
	s.Config = c.Node
	env, steps := inPlan(s, api)
	found := kubeletCertificates(t.Context(), env)
	if len(found) != 1 || found[0].Severity != fault.Unasked {
		t.Errorf("found %v", found)
	}
	phasetest.Fatal(t, step.Run(t.Context(), env, New(c, "/usr/bin/slipway").Phases(), step.Options{Serial: true}))
	fact.In(t, steps.String(), apiServer, settings)
}
