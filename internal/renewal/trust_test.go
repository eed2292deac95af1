// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renewal

import (
	"crypto/rand"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const kubeletConf, kubeletPEM = "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem"

// running has the static Pods of a control plane, and a kubelet with a certificate of its own.
func (c *controlPlane) running(t *testing.T) {
	t.Helper()
	for name, pod := range map[string]manifests.Object{
		manifests.APIServerName:         manifests.APIServer(c.Config, manifests.HostView{}),
		manifests.ControllerManagerName: manifests.ControllerManager(c.Config, manifests.HostView{}),
		manifests.EtcdName:              manifests.Etcd(c.Config, manifests.HostView{}, nil),
	} {
		data, err := manifests.Encode(pod)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, c.root, "/etc/kubernetes/manifests/"+name+".yaml", string(data))
	}
	ca, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "system:node:cp-1", time.Now().Add(time.Hour))
	fixture.Put(t, c.root, kubeletPEM, string(certs.EncodeCerts(leaf.Cert)))
	data, _, err := kubeconfig.RotatableKubelet(c.get(t, kubeletConf), kubeletPEM)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, c.root, kubeletConf, string(data))
}

// replace puts a new CA, and before it or after it more, into the place of one.
func (c *controlPlane) replace(t *testing.T, name string, also func(old, next certs.Pair) []certs.Pair) {
	t.Helper()
	row, _ := certs.Find(c.Config, name)
	old, err := c.CA(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certs.NewCA(row, c.Config, key, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	list := also(old, certs.Pair{Cert: cert, Key: key})
	for _, ca := range list {
		data = append(data, certs.EncodeCerts(ca.Cert)...)
	}
	files := c.Files(row)
	encoded, err := certs.EncodeKey(list[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, c.root, files[0], string(data))
	fixture.Put(t, c.root, files[1], string(encoded))
}

// TestCheckTrust: what wouldn't be accepted after a renewal is found before it, whichever side is left behind.
func TestCheckTrust(t *testing.T) {
	alone := func(_, next certs.Pair) []certs.Pair { return []certs.Pair{next} }
	nextFirst := func(old, next certs.Pair) []certs.Pair { return []certs.Pair{next, old} }
	oldFirst := func(old, next certs.Pair) []certs.Pair { return []certs.Pair{old, next} }
	edit := func(path, from, to string) func(t *testing.T, c *controlPlane) {
		return func(t *testing.T, c *controlPlane) {
			t.Helper()
			text := string(c.get(t, path))
			if !strings.Contains(text, from) {
				t.Fatalf("no %q in\n%s", from, text)
			}
			fixture.Put(t, c.root, path, strings.ReplaceAll(text, from, to))
		}
	}
	replace := func(name string, also func(old, next certs.Pair) []certs.Pair) func(t *testing.T, c *controlPlane) {
		return func(t *testing.T, c *controlPlane) { t.Helper(); c.replace(t, name, also) }
	}
	for name, tt := range map[string]struct {
		renew string // empty for all
		make  func(t *testing.T, c *controlPlane)
		want  string // in the error; empty for none
	}{
		"as it was":                 {"", func(*testing.T, *controlPlane) {}, ""},
		"the CA is another":         {"", replace(certs.CA, alone), kubeletPEM + " | ca.crt | kubelet.conf:"},
		"both, the next signs":      {"", replace(certs.CA, nextFirst), ""},
		"both, the old one signs":   {"", replace(certs.CA, oldFirst), ""},
		"etcd's CA is another":      {"", replace(certs.EtcdCA, alone), "etcd/peer.crt | etcd/ca.crt"}, // others have the former one
		"etcd's, both":              {"", replace(certs.EtcdCA, nextFirst), ""},
		"another, for one alone":    {"scheduler.conf", replace(certs.CA, alone), "scheduler.conf | pki/apiserver.crt"},
		"etcd's, for a client":      {"apiserver-etcd-client", replace(certs.EtcdCA, nextFirst), ""},
		"the front proxy's":         {"front-proxy-client", replace(certs.FrontProxyCA, alone), ""},
		"not what this is about":    {"etcd-peer", replace(certs.CA, alone), ""},
		"the API server has others": {"", edit("/etc/kubernetes/manifests/kube-apiserver.yaml", "--client-ca-file=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/etc/kubernetes/pki/etcd/ca.crt"), kubeletPEM + " | etcd/ca.crt | cluster-signing-cert-file"},
		"so has the kubelet": {"", func(t *testing.T, c *controlPlane) {
			t.Helper()
			fixture.Put(t, c.root, "/var/lib/kubelet/config.yaml", "authentication: {x509: {clientCAFile: /etc/kubernetes/pki/etcd/ca.crt}}\n")
		}, "apiserver-kubelet-client.crt | etcd/ca.crt"},
		"a load balancer in between": {"", edit(adminConf, "192.0.2.11:6443", "lb.example:443"), ""},
		"a kubelet that has expired": {"", func(t *testing.T, c *controlPlane) {
			t.Helper()
			gone := fixture.Signed(t, fixture.Pair{}, "system:node:cp-1", time.Now().Add(-time.Minute))
			fixture.Put(t, c.root, kubeletPEM, string(certs.EncodeCerts(gone.Cert)))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControlPlane(t)
			c.running(t)
			tt.make(t, c)
			err := Renewal{Store: c.Store, Name: tt.renew}.CheckTrust()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}

// TestCheckTrustShowsBothSides: two CAs of a cluster have the same name, so their keys tell them apart.
func TestCheckTrustShowsBothSides(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	old, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	c.replace(t, certs.CA, func(_, next certs.Pair) []certs.Pair { return []certs.Pair{next} })
	next, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	fact.Error(t, Renewal{Store: c.Store}.CheckTrust(), named("CN=kubernetes", old.Cert.SubjectKeyId), named("CN=kubernetes", next.Cert.SubjectKeyId))
}

// TestRenewalWritesCAs: renewed kubeconfig files trust all CAs in ca.crt, and the next check has nothing to say.
func TestRenewalWritesCAs(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	c.replace(t, certs.CA, func(old, next certs.Pair) []certs.Pair { return []certs.Pair{next, old} })
	ca, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Rows() {
		if err := (Renewal{Store: c.Store}).Renew(row.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.TrustInKubelet(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{adminConf, kubeletConf, "/etc/kubernetes/scheduler.conf"} {
		if _, trusted, err := kubeconfig.Server(c.get(t, path)); err != nil || !slices.EqualFunc(trusted, ca.Bundle(), (*x509.Certificate).Equal) {
			t.Errorf("%s: %d CAs, %v", path, len(trusted), err)
		}
	}
	if faults := c.Faults(false); len(faults) > 0 {
		t.Errorf("faults %v", faults)
	}
	fact.Error(t, Renewal{Store: c.Store}.CheckTrustNow()) // the restart gives the controller manager a file with one CA
}
