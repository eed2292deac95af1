// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	adminConf  = "/etc/kubernetes/admin.conf"
	superConf  = "/etc/kubernetes/super-admin.conf"
	kubeletOne = "/etc/kubernetes/kubelet.conf"
	local      = "192.0.2.11:6443"
)

// reachable is a live control plane whose API answers at any name that its certificate is for, except for those in silent. others are
// the addresses of further API servers, each with the names in its certificate.
func reachable(t *testing.T, silent *[]string, others map[string][]string) *phasetest.Stage {
	t.Helper()
	s := live(t)
	ca, err := s.PKI().CA(certs.CA)
	phasetest.Fatal(t, err)
	info, err := kubeconfig.ClusterInfo("https://"+local, ca.Bundle())
	phasetest.Fatal(t, err)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	for _, address := range append([]string{"192.0.2.11"}, keysOf(others)...) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	phasetest.Fatal(t, s.API.Ensure(t.Context(), manifests.ClusterInfo(info), slice))
	s.FakeHost.On.Date = func(_ context.Context, p host.Probe) (time.Time, error) {
		u, err := url.Parse(p.URL)
		if err != nil || len(p.CA) == 0 {
			return time.Time{}, errors.Errorf("%s, without a CA: %v", p.URL, err)
		}
		name := u.Hostname()
		if slices.Contains(*silent, u.Hostname()) {
			return time.Time{}, errors.New("connection refused")
		}
		if p.ServerName != "" {
			name = p.ServerName
		}
		if names, another := others[u.Hostname()]; another {
			if !slices.Contains(names, name) {
				return time.Time{}, errors.New("not for " + name)
			}
			return time.Now(), nil
		}
		return time.Now(), s.Cert(t, serverCert).VerifyHostname(name)
	}
	s.Done = nil
	return s
}

func keysOf(m map[string][]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lead runs `reconfigure` with fields of the ClusterConfiguration.
func lead(t *testing.T, s *phasetest.Stage, fields string) error {
	t.Helper()
	c, _, err := loaderOn(s).Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(ofCluster + fields)})
	phasetest.Fatal(t, err)
	s.Config = c.Node.With(func(n *config.Node) { n.Timeouts.UpgradeManifests = 2 * time.Second })
	return step.Run(t.Context(), s.Env, New(c, "/usr/bin/slipway").Phases(), step.Options{})
}

// led is each client with the endpoint that it leads to.
func led(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{adminConf, superConf, kubeletOne, "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"} {
		at, err := kubeconfig.Endpoint([]byte(s.Get(t, path)))
		phasetest.Fatal(t, err)
		all[path] = at
	}
	for _, at := range [][3]string{{"kube-public", "cluster-info", "kubeconfig"}, {"kube-system", "kube-proxy", "kubeconfig.conf"}} {
		text, err := cluster.ConfigMapText(t.Context(), s.API, at[0], at[1], at[2])
		phasetest.Fatal(t, err)
		endpoint, err := kubeconfig.Endpoint([]byte(text))
		phasetest.Fatal(t, err)
		all[at[1]] = endpoint
	}
	return all
}

// allAt is led with every client of the endpoint there.
func allAt(endpoint string) map[string]string {
	return map[string]string{
		adminConf: endpoint, superConf: endpoint, "cluster-info": endpoint, "kube-proxy": endpoint,
		kubeletOne: local, "/etc/kubernetes/controller-manager.conf": local, "/etc/kubernetes/scheduler.conf": local,
	}
}

func isLed(t *testing.T, s *phasetest.Stage, endpoint string, names ...string) {
	t.Helper()
	if diff := cmp.Diff(allAt(endpoint), led(t, s)); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	for _, name := range names {
		if err := s.Cert(t, serverCert).VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if s.Holder(t) != "" || len(guarded(t, s)) > 0 {
		t.Errorf("%q holds the Lease, and there are still %q", s.Holder(t), guarded(t, s))
	}
}

// TestEndpoint: a cluster gets its first endpoint, then another, and gives up the name of the first. The old name is valid in between.
func TestEndpoint(t *testing.T) {
	s := reachable(t, &[]string{}, nil)
	key := s.Get(t, adminConf)
	phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: first.example.org\n"))
	isLed(t, s, "first.example.org:6443", "first.example.org", "192.0.2.11")
	if moved, _ := kubeconfig.AtServer([]byte(s.Get(t, adminConf)), "https://"+local); string(moved) != key {
		t.Error("admin.conf has changed in other ways")
	}
	s.Said.Reset()
	phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: next.example.org:443\n"))
	isLed(t, s, "next.example.org:443", "first.example.org", "next.example.org")
	fact.In(t, stored(t, s, "kubeadm-config", "ClusterConfiguration"), "controlPlaneEndpoint: next.example.org:443", "- first.example.org")
	cm := node.ConfigMap("kubeadm-config")
	_, err := s.API.Get(t.Context(), cm)
	phasetest.Fatal(t, err)
	if got := cm.Annotations[reconfiguring.FormerEndpoints]; got != local+",first.example.org:6443" {
		t.Errorf("former endpoints: %s", got)
	}

	phasetest.Fatal(t, lead(t, s, "apiServer: {certSANs: null}\n"))
	isLed(t, s, "next.example.org:443", "next.example.org", "192.0.2.11")
	if s.Cert(t, serverCert).VerifyHostname("first.example.org") == nil {
		t.Error("the former name is still in the certificate")
	}
	s.Done = nil
	phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: next.example.org:443\n"))
	if len(s.Done) > 0 {
		t.Errorf("the second time, did %q", s.Done)
	}
}

// TestEndpointGoesBack: what fails on trial, or is taken back, leaves every client as it was. A name that nodes may use by then stays.
func TestEndpointGoesBack(t *testing.T) {
	t.Run("fails", func(t *testing.T) {
		s := reachable(t, &[]string{}, nil)
		before, config, refused := files(t, s), configuration(t, s), errors.New("it does not work")
		s.Cluster = &refusing{s.API, "kube-proxy", 2, refused}
		err := lead(t, s, "controlPlaneEndpoint: first.example.org\n")
		if back := (*node.RolledBackError)(nil); !errors.As(err, &back) {
			t.Error(err)
		}
		isLed(t, s, local, "192.0.2.11")
		isBefore(t, s, before, config)
	})
	t.Run("is taken back", func(t *testing.T) {
		s := reachable(t, &[]string{}, nil)
		had := configuration(t, s)
		admin := s.Get(t, adminConf)
		phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: first.example.org\n"))
		if copies := s.FakeHost.Did("write"); slices.Contains(copies, "etc-kubernetes-admin.conf") || !slices.Contains(copies, "etc-kubernetes-pki-apiserver.crt") {
			t.Errorf("credentials were copied, or nothing: %q", copies)
		}
		own, err := kubeconfig.AtServer([]byte(s.Get(t, superConf)), "https://own.example.org:6443")
		phasetest.Fatal(t, err)
		s.Put(t, superConf, string(own))
		phasetest.Fatal(t, takeBack(t, s))
		if s.Get(t, adminConf) != admin {
			t.Error("admin.conf is not as it was")
		}
		if s.Get(t, superConf) != string(own) {
			t.Error("somebody's own server in super-admin.conf has changed")
		}
		fact.In(t, s.Said.String(), superConf, "own.example.org:6443")
		back, err := kubeconfig.AtServer(own, "https://"+local)
		phasetest.Fatal(t, err)
		s.Put(t, superConf, string(back))
		isLed(t, s, local, "192.0.2.11", "first.example.org")
		if diff := cmp.Diff(had, configuration(t, s)); diff != "" {
			t.Errorf("configuration:\n%s", diff)
		}
	})
}

// TestEndpointRefused changes nothing.
func TestEndpointRefused(t *testing.T) {
	const next = "controlPlaneEndpoint: first.example.org\n"
	for name, test := range map[string]struct {
		silent []string
		others map[string][]string
		facts  []string
	}{
		"nobody answers": {silent: []string{"first.example.org"}, facts: []string{endpointCheck, "first.example.org:6443", "/readyz"}},
		"another API server lacks the name": {
			others: map[string][]string{"192.0.2.12": {"kubernetes"}, "192.0.2.13": {"first.example.org"}},
			facts:  []string{namesCheck, "192.0.2.12:6443", "apiServer.certSANs", "`slipway reconfigure node`"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := reachable(t, &test.silent, test.others)
			before := files(t, s)
			err := lead(t, s, next)
			fact.Error(t, err, test.facts...)
			fact.NotIn(t, err.Error(), "192.0.2.13")
			if diff := cmp.Diff(before, files(t, s)); diff != "" || state(t, s) != "" {
				t.Errorf("files:\n%s", diff)
			}
			isLed(t, s, local)
		})
	}
	t.Run("it stops answering", func(t *testing.T) {
		silent := []string{}
		s := reachable(t, &silent, nil)
		before, had := files(t, s), configuration(t, s)
		s.FakeHost.On.Probe = func(context.Context, host.Probe) error { // once the change is on trial
			silent = []string{"first.example.org"}
			return nil
		}
		fact.Error(t, lead(t, s, next), "first.example.org:6443")
		isLed(t, s, local)
		isBefore(t, s, before, had)
	})
}

// TestEndpointKeepsOthers: a file that leads elsewhere is an operator's, and a name that something still uses stays.
func TestEndpointKeepsOthers(t *testing.T) {
	s := reachable(t, &[]string{}, nil)
	phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: first.example.org\napiServer: {certSANs: [own.example.org]}\n"))
	moved, err := kubeconfig.AtServer([]byte(s.Get(t, superConf)), "https://first.example.org:7443")
	phasetest.Fatal(t, err)
	s.Put(t, superConf, string(moved))
	s.Said.Reset()
	phasetest.Fatal(t, lead(t, s, "controlPlaneEndpoint: next.example.org\n"))
	want := allAt("next.example.org:6443")
	want[superConf] = "first.example.org:7443"
	if diff := cmp.Diff(want, led(t, s)); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	fact.In(t, s.Said.String(), superConf, "first.example.org:7443")
	s.Said.Reset()
	phasetest.Fatal(t, lead(t, s, "apiServer: {certSANs: null}\n"))
	fact.In(t, s.Said.String(), "first.example.org", superConf, "`slipway reconfigure node`")
	if err := s.Cert(t, serverCert).VerifyHostname("first.example.org"); err != nil {
		t.Error(err)
	}
	s.Put(t, superConf, s.Get(t, adminConf))
	phasetest.Fatal(t, toStored(t, s))
	if cert := s.Cert(t, serverCert); cert.VerifyHostname("first.example.org") == nil || cert.VerifyHostname("own.example.org") != nil {
		t.Errorf("the certificate is for %q", cert.DNSNames)
	}
}
