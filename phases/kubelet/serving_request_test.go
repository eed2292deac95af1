// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// asks is a kubelet that has made a request.
type asks struct {
	*cluster.Plan
	request  *cluster.CertificateRequest
	approved []string
}

func (a *asks) AwaitServing(_ context.Context, _ string, accept func(*cluster.CertificateRequest) error) (*cluster.CertificateRequest, error) {
	return a.request, accept(a.request)
}

func (a *asks) Approve(_ context.Context, r *cluster.CertificateRequest, _ string) error {
	a.approved = append(a.approved, r.Name())
	return context.Canceled // the certificate doesn't come
}

// request is the kubelet's of cp-1, with a change.
func request(t *testing.T, change func(*x509.CertificateRequest, *cluster.CertificateRequest)) *cluster.CertificateRequest {
	t.Helper()
	key, err := certs.NewKey(certs.KubeletServingAlgorithm)
	phasetest.Fatal(t, err)
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:cp-1", Organization: []string{"system:nodes"}},
		DNSNames: []string{"cp-1"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.11")},
	}
	r := &cluster.CertificateRequest{}
	r.Metadata.Name = "csr-x"
	r.Spec.SignerName, r.Spec.Username, r.Spec.Usages = cluster.ServingSigner, "system:node:cp-1", []string{"digital signature", "server auth"}
	change(template, r)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	phasetest.Fatal(t, err)
	r.Spec.Request = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), r.Spec.Request...)
	return r
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
			for _, plane := range []bool{true, false} {
				s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
				s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("127.0.0.1")}
				s.Config.ControlPlane, s.Config.Kubelet.ServerTLSBootstrap = plane, true
				api := &asks{Plan: s.API, request: request(t, test.change)}
				s.Cluster = api
				err := EnsureServing(t.Context(), s.Env)
				said := s.Said.String() + s.Results.String()
				switch {
				case plane && slices.Equal(api.approved, []string{"csr-x"}) != (test.want == ""):
					t.Errorf("approved %q: %v", api.approved, err)
				case plane && test.want != "":
					fact.Error(t, err, test.want)
				case !plane && (err != nil || len(api.approved) > 0 || strings.Contains(said, "kubectl certificate approve csr-x") != (test.want == "")):
					t.Errorf("approved %q, said %s: %v", api.approved, said, err)
				}
			}
		})
	}
}
