// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// asks is a kubelet that has made requests, and makes another when it restarts.
type asks struct {
	*cluster.Plan
	requests []cluster.CertificateRequest
	approved []string
	// approve is what follows an approval.
	approve func() error
}

func (a *asks) ServingRequests(context.Context, string) ([]cluster.CertificateRequest, error) {
	return a.requests, nil
}

func (a *asks) AwaitServing(_ context.Context, _ string, former []string, accept func(*cluster.CertificateRequest) error) (*cluster.CertificateRequest, error) {
	list := slices.DeleteFunc(slices.Clone(a.requests), func(r cluster.CertificateRequest) bool { return slices.Contains(former, r.Metadata.UID) })
	if len(list) == 0 {
		return nil, accept(nil)
	}
	newest := &list[len(list)-1]
	return newest, accept(newest)
}

func (a *asks) Approve(_ context.Context, r *cluster.CertificateRequest, _ string) error {
	a.approved = append(a.approved, r.Name())
	return a.approve()
}

// asking is a stage whose control plane's or worker's kubelet makes a request when it restarts.
func asking(t *testing.T, plane bool, change func(*x509.CertificateRequest, *cluster.CertificateRequest)) (*phasetest.Stage, *asks) {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.96.0.1")}
	s.Config.ControlPlane, s.Config.Kubelet.ServerTLSBootstrap = plane, true
	api := &asks{Plan: s.API, approve: func() error { return errors.New("the certificate doesn't come") }}
	add := func() {
		r, _ := request(t, change)
		r.Metadata.Name = fmt.Sprintf("csr-%d", len(api.requests))
		r.Metadata.UID, r.Metadata.CreationTimestamp = r.Metadata.Name, metav1.NewTime(s.Host.Now())
		api.requests = append(api.requests, *r)
	}
	s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
		host.RestartUnit: func(context.Context, string) error { //nolint:unparam // the signature of an order
			add()
			return nil
		},
	}
	add()
	s.Cluster = api
	return s, api
}

// request is the kubelet's of cp-1, with a change.
func request(t *testing.T, change func(*x509.CertificateRequest, *cluster.CertificateRequest)) (*cluster.CertificateRequest, crypto.Signer) {
	t.Helper()
	key, err := certs.NewKey(certs.KubeletServingAlgorithm)
	phasetest.Fatal(t, err)
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:cp-1", Organization: []string{"system:nodes"}},
		DNSNames: []string{"cp-1"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.11")},
	}
	r := &cluster.CertificateRequest{}
	r.Spec.SignerName, r.Spec.Username, r.Spec.Usages = cluster.ServingSigner, "system:node:cp-1", []string{"digital signature", "server auth"}
	change(template, r)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	phasetest.Fatal(t, err)
	r.Spec.Request = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), r.Spec.Request...)
	return r, key
}

// TestServingRequest: only a request for this host's own names and addresses is approved; a worker only names it.
func TestServingRequest(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*x509.CertificateRequest, *cluster.CertificateRequest)
		want   string // a fact of why not
	}{
		"its own":      {func(*x509.CertificateRequest, *cluster.CertificateRequest) {}, ""},
		"another name": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) { x.DNSNames = []string{"cp-1", "cp-2"} }, "cp-2"},
		"another address": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.IPAddresses[0] = net.ParseIP("192.0.2.12")
		}, "192.0.2.12"},
		"loopback": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.IPAddresses = append(x.IPAddresses, net.ParseIP("127.0.0.1"))
		}, "127.0.0.1"},
		"a Service's": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.IPAddresses = append(x.IPAddresses, net.ParseIP("10.96.0.1"))
		}, "10.96.0.1"},
		"no names": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) { x.DNSNames, x.IPAddresses = nil, nil }, "names"},
		"a URI": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, "URIs"},
		"another subject": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.Subject.CommonName = "system:node:cp-2"
		}, "system:node:cp-2"},
		"another group": {func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
			x.Subject.Organization = []string{"system:masters"}
		}, "system:masters"},
		"another user":   {func(_ *x509.CertificateRequest, r *cluster.CertificateRequest) { r.Spec.Username = "system:node:cp-2" }, "system:node:cp-2"},
		"another signer": {func(_ *x509.CertificateRequest, r *cluster.CertificateRequest) { r.Spec.SignerName = "example.org/x" }, "example.org/x"},
		"a client's": {func(_ *x509.CertificateRequest, r *cluster.CertificateRequest) {
			r.Spec.Usages = append(r.Spec.Usages, "client auth")
		}, "client auth"},
		"a second document": {func(_ *x509.CertificateRequest, r *cluster.CertificateRequest) { r.Spec.Request = []byte("x") }, "PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			s, api := asking(t, true, test.change)
			phasetest.Fatal(t, ensureServing(t.Context(), s.Env))
			said := s.Said.String()
			if slices.Equal(api.approved, []string{"csr-1"}) != (test.want == "") || !slices.Equal(s.FakeHost.Orders(), []string{"restart kubelet.service"}) {
				t.Errorf("approved %q, %q, said %s", api.approved, s.FakeHost.Orders(), said)
			}
			if test.want != "" {
				fact.In(t, said, test.want, "`kubectl certificate approve`")
			}
			s, api = asking(t, false, test.change)
			phasetest.Fatal(t, ensureServing(t.Context(), s.Env))
			said = s.Said.String() + s.Results.String()
			if len(api.approved)+len(s.FakeHost.Orders()) > 0 || strings.Contains(said, "kubectl certificate approve csr-0") != (test.want == "") {
				t.Errorf("approved %q, %q, said %s", api.approved, s.FakeHost.Orders(), said)
			}
		})
	}
}

func none(*x509.CertificateRequest, *cluster.CertificateRequest) {}

// certify gives the kubelet a certificate of the stage's CA, or of another CA, as far into its life as the share.
func certify(t *testing.T, s *phasetest.Stage, public crypto.PublicKey, share float64, foreign bool) {
	t.Helper()
	const year = 365 * 24 * time.Hour
	now := s.Host.Now()
	sign := func() (*x509.Certificate, crypto.Signer) {
		key, err := certs.NewKey(certs.KubeletServingAlgorithm)
		phasetest.Fatal(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true,
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-9 * year), NotAfter: now.Add(9 * year)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		phasetest.Fatal(t, err)
		ca, err := x509.ParseCertificate(der)
		phasetest.Fatal(t, err)
		return ca, key
	}
	ca, key := sign()
	s.Put(t, s.Config.Kubelet.Authentication.X509.ClientCAFile, string(certs.EncodeCerts(ca)))
	if foreign {
		ca, key = sign()
	}
	began := now.Add(-time.Duration(share * float64(year)))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: began, NotAfter: began.Add(year),
		Subject:  pkix.Name{CommonName: "system:node:cp-1", Organization: []string{"system:nodes"}},
		DNSNames: []string{"cp-1"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.11")}}, ca, public, key)
	phasetest.Fatal(t, err)
	leaf, err := x509.ParseCertificate(der)
	phasetest.Fatal(t, err)
	s.Put(t, "/var/lib/kubelet/pki/kubelet-server-current.pem", string(certs.EncodeCerts(leaf)))
}

// TestServingRenewal: a kubelet with a valid certificate gets the next one when it has asked in time. It isn't restarted for that, and
// a request that can't be approved is no failure. A kubelet that has never had one is left alone.
func TestServingRenewal(t *testing.T) {
	for name, test := range map[string]struct {
		share             float64
		foreign, asks     bool
		approved, restart bool
	}{
		"new":                                 {0.1, false, true, false, false},
		"moved":                               {0.1, false, true, true, false},
		"moved, not asked":                    {0.1, false, false, false, false},
		"moved, asked for the former address": {0.1, false, true, false, false},
		"due":                                 {0.8, false, true, true, false},
		"another address":                     {0.1, false, true, true, false},
		"due, not asked":                      {0.8, false, false, false, false},
		"expired":                             {1.1, false, true, true, true},
		"expired, not asked":                  {1.1, false, false, false, false},
		"another cluster's":                   {0.1, true, true, true, true},
		"never approved":                      {0, false, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, api := asking(t, true, none)
			if !test.asks {
				api.requests = nil
			}
			if name == "another address" || name == "moved" {
				s, api = asking(t, true, func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
					x.IPAddresses[0] = net.ParseIP("192.0.2.77")
				})
				s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.77")}
			}
			if strings.HasPrefix(name, "moved") {
				registered := cluster.NewNode("cp-1")
				registered.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.77"}, {Type: corev1.NodeHostName, Address: "cp-1"}}
				phasetest.Fatal(t, s.API.Ensure(t.Context(), registered))
			}
			key, err := certs.NewKey(certs.KubeletServingAlgorithm)
			phasetest.Fatal(t, err)
			if test.share > 0 {
				certify(t, s, key.Public(), test.share, test.foreign)
			}
			phasetest.Fatal(t, RenewServing(t.Context(), s.Env))
			if (len(api.approved) == 1) != test.approved || (len(s.FakeHost.Orders()) == 1) != test.restart {
				t.Errorf("approved %q, %q", api.approved, s.FakeHost.Orders())
			}
		})
	}
}

// TestServingKey: after the approval, the kubelet gets the certificate, for the key of the request.
func TestServingKey(t *testing.T) {
	for name, other := range map[string]bool{"its own": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			s, api := asking(t, true, none)
			former, err := certs.NewKey(certs.KubeletServingAlgorithm)
			phasetest.Fatal(t, err)
			certify(t, s, former.Public(), 1.1, false)
			r, key := request(t, none)
			s.FakeHost.On.Orders = nil
			api.requests, api.approve = nil, func() error {
				public := key.Public()
				if other {
					key, err := certs.NewKey(certs.KubeletServingAlgorithm)
					phasetest.Fatal(t, err)
					public = key.Public()
				}
				certify(t, s, public, 0, false)
				return nil
			}
			s.Cluster = &asksLater{asks: api, later: *r}
			err = ensureServing(t.Context(), s.Env)
			if errors.Is(err, errAnotherKey) != other || !other && err != nil || len(api.approved) != 1 {
				t.Errorf("approved %q: %v", api.approved, err)
			}
		})
	}
}

// asksLater asks for the first time while it's waited for.
type asksLater struct {
	*asks
	later cluster.CertificateRequest
}

func (a *asksLater) AwaitServing(ctx context.Context, node string, former []string, accept func(*cluster.CertificateRequest) error) (*cluster.CertificateRequest, error) {
	if err := accept(nil); err == nil {
		return nil, errors.New("no request is no certificate")
	}
	a.requests = append(a.requests, a.later)
	return a.asks.AwaitServing(ctx, node, former, accept)
}

// TestServingOfOthers: somebody else approves requests, or knows the addresses, or this host's settings turn them off.
func TestServingOfOthers(t *testing.T) {
	s, api := asking(t, true, none)
	key, err := certs.NewKey(certs.KubeletServingAlgorithm)
	phasetest.Fatal(t, err)
	s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
		host.RestartUnit: func(context.Context, string) error { //nolint:unparam // the signature of an order
			certify(t, s, key.Public(), 0, false)
			return nil
		},
	}
	phasetest.Fatal(t, ensureServing(t.Context(), s.Env))
	if len(api.approved) > 0 || strings.Contains(s.Said.String(), "kubectl certificate approve") {
		t.Errorf("approved %q, said %s", api.approved, s.Said.String())
	}
	for _, flag := range []string{"cloud-provider=external", "rotate-server-certificates=false"} {
		s, api := asking(t, true, none)
		s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--"+flag+"\"\n")
		phasetest.Fatal(t, ensureServing(t.Context(), s.Env))
		if len(api.approved)+len(s.FakeHost.Orders()) > 0 {
			t.Errorf("%s: approved %q, %q", flag, api.approved, s.FakeHost.Orders())
		}
	}
}
