// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func newCA(name string) authority {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: at.Add(-time.Hour), NotAfter: at.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return authority{sign(template, template, key, key), key}
}

func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
}

// leaf returns a certificate of the CA, valid from a time on for the given duration.
func (a authority) leaf(from time.Time, valid time.Duration, address string) (cert, key []byte) {
	own := newKey()
	c := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: from, NotAfter: from.Add(valid),
		IPAddresses: []net.IP{net.ParseIP(address)},
	}, a.cert, own, a.key)
	data, err := certs.EncodeKey(own)
	if err != nil {
		panic(err)
	}
	return certs.EncodeCerts(c), data
}

// certified gives the fake API server a certificate and a kubeconfig from one CA.
func (h *fakeHost) certified(ca authority) {
	h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--client-ca-file=/pki/ca.crt", "--tls-cert-file=/pki/a.crt", "--tls-private-key-file=/pki/a.key")
	h.put("/pki/ca.crt", string(certs.EncodeCerts(ca.cert)))
	h.serve(ca.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11"))
	h.kubeconfig(ca, ca, time.Hour)
}

func (h *fakeHost) serve(cert, key []byte) {
	h.put("/pki/a.crt", string(cert))
	h.put("/pki/a.key", string(key))
}

func (h *fakeHost) kubeconfig(trusted, signer authority, valid time.Duration) {
	cert, key := signer.leaf(at.Add(-time.Minute), valid, "192.0.2.11")
	b64 := base64.StdEncoding.EncodeToString
	h.put("/etc/kubernetes/kubelet.conf", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://api.example.org:6443", certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]
`, b64(certs.EncodeCerts(trusted.cert)), b64(cert), b64(key)))
}

// trustsFile gives the kubelet a kubeconfig with its CA in a file.
func (h *fakeHost) trustsFile(trusted, signer authority) {
	h.kubeconfig(trusted, signer, time.Hour)
	text := fixture.Get(h.t, h.Root, "/etc/kubernetes/kubelet.conf")
	data := base64.StdEncoding.EncodeToString(certs.EncodeCerts(trusted.cert))
	h.put("/etc/kubernetes/kubelet.conf", strings.Replace(text, "certificate-authority-data: "+data, "certificate-authority: trusted.crt", 1))
	h.put("/etc/kubernetes/trusted.crt", string(certs.EncodeCerts(trusted.cert)))
}

// externalEtcd gives the API server an etcd on other hosts, whose servers' certificates and whose clients' come from two CAs.
func (h *fakeHost) externalEtcd(servers, clients authority) {
	h.remove(manifestDir + "/etcd.yaml")
	h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--client-ca-file=/pki/ca.crt", "--tls-cert-file=/pki/a.crt", "--tls-private-key-file=/pki/a.key",
		"--etcd-cafile=/pki/etcd-ca.crt", "--etcd-certfile=/pki/e.crt", "--etcd-keyfile=/pki/e.key")
	h.put("/pki/etcd-ca.crt", string(certs.EncodeCerts(servers.cert)))
	cert, key := clients.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11")
	h.put("/pki/e.crt", string(cert))
	h.put("/pki/e.key", string(key))
}

// asksKubelets gives the API server a certificate for kubelets, and this host's kubelet the CA of its clients.
func (h *fakeHost) asksKubelets(ca, signer, clients authority) {
	h.certified(ca)
	h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--client-ca-file=/pki/ca.crt", "--tls-cert-file=/pki/a.crt", "--tls-private-key-file=/pki/a.key",
		"--kubelet-client-certificate=/pki/k.crt", "--kubelet-client-key=/pki/k.key")
	cert, key := signer.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11")
	h.put("/pki/k.crt", string(cert))
	h.put("/pki/k.key", string(key))
	h.clientCA = "/etc/kubernetes/clients.crt"
	h.put(h.clientCA, string(certs.EncodeCerts(clients.cert)))
}

const unknownAuthority = `E1121 "x" err="tls: failed to verify certificate: x509: certificate signed by unknown authority"`

func certificateRows() []row {
	ca, other := newCA("ours"), newCA("another")
	complained := func(hurt func(h *fakeHost)) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.certified(ca)
			hurt(h)
			h.said(unknownAuthority)
		}
	}
	served := func(from, valid time.Duration) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.serving = "/var/lib/kubelet/pki/kubelet-server-current.pem"
			cert, key := ca.leaf(at.Add(from), valid, "192.0.2.11")
			h.put(h.serving, string(cert)+string(key))
		}
	}
	return []row{
		{"kubelet-serving", "expired", served(-2*time.Hour, time.Hour), "kubelet; expired; 2026-11-21T08:00:00Z; `slipway reconfigure node`", true},
		{"kubelet-serving", "not renewed", served(-95*time.Minute, 100*time.Minute), "kubelet; 2026-11-21T09:05:00Z; `slipway reconfigure node`", true},
		{"kubelet-serving", "still asking", served(-85*time.Minute, 100*time.Minute), "", false},
		{"kubelet-serving", "not approved yet", func(h *fakeHost) { h.serving = "/var/lib/kubelet/pki/kubelet-server-current.pem" }, "", false},
		{"certificate", "expired", complained(func(h *fakeHost) { h.serve(ca.leaf(at.Add(-time.Hour), time.Minute, "192.0.2.11")) }), "kube-apiserver; /pki/a.crt expired; 2026-11-21T08:01:00Z; `slipway certs renew all --restart`", false},
		{"certificate", "of another key", complained(func(h *fakeHost) { _, key := ca.leaf(at, time.Hour, "192.0.2.11"); h.put("/pki/a.key", string(key)) }), "/pki/a.crt; key /pki/a.key", false},
		{"certificate", "of another address", complained(func(h *fakeHost) { h.serve(ca.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.9")) }), "/pki/a.crt; 192.0.2.11; `slipway certs renew all --restart`", false},
		{"certificate", "missing", complained(func(h *fakeHost) { h.remove("/pki/a.crt") }), "/pki/a.crt; not exist", false},
		{"certificate", "empty", complained(func(h *fakeHost) { h.put("/pki/a.crt", "") }), "/pki/a.crt; empty", false},
		{"certificate", "garbage for a key", complained(func(h *fakeHost) { h.put("/pki/a.key", "x") }), "/pki/a.key; PEM", false},
		{"certificate", "of the kubelet", complained(func(h *fakeHost) { h.kubeconfig(ca, ca, time.Second) }), "kubelet.conf; /etc/kubernetes/kubelet.conf expired; 2026-11-21T08:59:01Z; `slipway token create --print-join-command`", false},
		{"certificate", "fine, though somebody complains", complained(func(*fakeHost) {}), "", false},
		{"certificate", "expired, and nobody complains", func(h *fakeHost) {
			h.certified(ca)
			h.serve(ca.leaf(at.Add(-time.Hour), time.Minute, "192.0.2.11"))
		}, "", false},
		{"ca-mismatch", "of the API server", complained(func(h *fakeHost) { h.serve(other.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11")) }), `kubelet.conf; /pki/a.crt (issued by "CN=another"); /etc/kubernetes/kubelet.conf; ("CN=ours")`, false},
		{"ca-mismatch", "of the kubelet", complained(func(h *fakeHost) { h.kubeconfig(newCA("ours"), other, time.Hour) }), `/etc/kubernetes/kubelet.conf (issued by "CN=another"); /pki/ca.crt ("CN=ours"); /pki/a.crt`, false},
		{"ca-mismatch", "with a load balancer's own CA", complained(func(h *fakeHost) { h.kubeconfig(other, ca, time.Hour) }), "", false},
		{"ca-mismatch", "a CA in a file", complained(func(h *fakeHost) { h.trustsFile(ca, ca) }), "", false},
		{"certificate", "a CA in a file", complained(func(h *fakeHost) { h.trustsFile(ca, ca) }), "", false},
		{"ca-mismatch", "another CA in a file", complained(func(h *fakeHost) { h.trustsFile(newCA("ours"), ca) }), "kubelet.conf; /pki/a.crt", false},
		{"ca-mismatch", "of a serving CA apart, which the kubelet trusts, too", complained(func(h *fakeHost) {
			h.serve(other.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11"))
			h.trustsFile(ca, ca)
			h.put("/etc/kubernetes/trusted.crt", string(certs.EncodeCerts(ca.cert, other.cert)))
		}), "", false},
		{"ca-mismatch", "of a CA for the kubelets' clients", complained(func(h *fakeHost) { h.asksKubelets(ca, other, other) }), "", false},
		{"ca-mismatch", "of a CA for the kubelets' clients, unknown", complained(func(h *fakeHost) {
			h.asksKubelets(ca, other, other)
			h.clientCA = ""
		}), "", false},
		{"ca-mismatch", "of another CA for the kubelets' clients", complained(func(h *fakeHost) { h.asksKubelets(ca, ca, other) }), `kube-apiserver; /pki/k.crt (issued by "CN=ours"); /etc/kubernetes/clients.crt ("CN=another")`, false},
		{"certificate", "of the kubelet, in a file named from its kubeconfig's directory", complained(func(h *fakeHost) {
			h.kubeconfig(ca, ca, time.Hour)
			text := fixture.Get(h.t, h.Root, "/etc/kubernetes/kubelet.conf")
			before, _, _ := strings.Cut(text, "client-certificate-data")
			h.put("/etc/kubernetes/kubelet.conf", before+"client-certificate: pki/k.crt, client-key: pki/k.crt}}]\n")
			cert, _ := ca.leaf(at.Add(-time.Hour), time.Minute, "192.0.2.11")
			h.put("/etc/kubernetes/pki/k.crt", string(cert))
		}), "/etc/kubernetes/pki/k.crt; 2026-11-21T08:01:00Z", false},
		{"ca-mismatch", "of an external etcd's clients", complained(func(h *fakeHost) { h.externalEtcd(other, ca) }), "", false},
		{"certificate", "an external etcd's CA", complained(func(h *fakeHost) {
			h.externalEtcd(other, ca)
			h.remove("/pki/etcd-ca.crt")
		}), "/pki/etcd-ca.crt; not exist", false},
		{"ca-mismatch", "of an API server elsewhere", func(h *fakeHost) {
			h.kubeconfig(ca, ca, time.Hour)
			h.insisted(`E1121 "x" err="Get \"https://api.example.org:6443/api/v1/nodes/cp-1\": tls: failed to verify certificate: x509: certificate signed by unknown authority"`)
		}, "https://api.example.org:6443; `slipway token create --print-join-command`", false},
		{"ca-mismatch", "of a registry", func(h *fakeHost) {
			h.kubeconfig(ca, ca, time.Hour)
			h.insisted(`E1121 "PullImage from image service failed" err="Get \"https://registry.example.org/v2/\": x509: certificate signed by unknown authority"`)
		}, "", false},
		{"ca-mismatch", "by way of an intermediate CA", complained(func(h *fakeHost) {
			between := newCA("between")
			between.cert = sign(between.cert, ca.cert, between.key, ca.key)
			cert, key := between.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11")
			h.serve(append(cert, certs.EncodeCerts(between.cert)...), key)
		}), "", false},
		{"ca-mismatch", "by way of a CA that another has signed", complained(func(h *fakeHost) {
			between := newCA("between")
			between.cert = sign(between.cert, other.cert, between.key, other.key)
			cert, key := between.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.11")
			h.serve(append(cert, certs.EncodeCerts(between.cert)...), key)
		}), `/pki/a.crt (issued by "CN=between"); /etc/kubernetes/kubelet.conf; ("CN=ours")`, false},
		{"clock", "a little behind a certificate", func(h *fakeHost) {
			h.certified(ca)
			h.serve(ca.leaf(at.Add(2*time.Second), time.Hour, "192.0.2.11"))
			h.said(`E1121 "x" err="x509: certificate has expired or is not yet valid: current time is before"`)
		}, "/pki/a.crt; 2026-11-21T09:00:02Z; 2026-11-21T09:00:00Z", true},
		{"clock", "behind a certificate", func(h *fakeHost) {
			h.certified(ca)
			h.serve(ca.leaf(at.Add(time.Minute), time.Hour, "192.0.2.11"))
			h.said(`E1121 "x" err="x509: certificate has expired or is not yet valid: current time is before"`)
		}, "/pki/a.crt; 2026-11-21T09:01:00Z; 2026-11-21T09:00:00Z", false},
		{"clock", "behind the API server", func(h *fakeHost) {
			h.kubeconfig(ca, ca, time.Hour)
			h.apart = 2 * time.Minute
			h.said(`E1121 "x" err="x509: certificate has expired or is not yet valid"`)
		}, "2m0s; https://api.example.org:6443", false},
	}
}

// Without a wait, a fault counts even if nothing has failed because of it yet.
func TestDiagnosisLooksAhead(t *testing.T) {
	ca := newCA("ours")
	for want, hurt := range map[string]func(h *fakeHost){
		"certificate":  func(h *fakeHost) { h.serve(ca.leaf(at.Add(-time.Hour), time.Minute, "192.0.2.11")) },
		"ca-mismatch":  func(h *fakeHost) { h.kubeconfig(newCA("ours"), ca, time.Hour) },
		"name-unknown": func(h *fakeHost) { h.names["api.example.org"] = true },
		"clock":        func(h *fakeHost) { h.apart = -time.Minute },
		"disk-full": func(h *fakeHost) {
			h.Has.Space["/var/lib/etcd"] = h.Has.Space["/none"] // nothing is free
		},
	} {
		h := healthy(t)
		h.certified(ca)
		hurt(h)
		if found := names(t, h, false); len(found) != 1 || found[0] != want {
			t.Errorf("found %v, want %s", found, want)
		}
	}
}

// TestPathsInContainers: a flag has a path in the container, which may be elsewhere on the host, or only in the image.
func TestPathsInContainers(t *testing.T) {
	ca := newCA("ours")
	for name, tt := range map[string]struct {
		hurt func(h *fakeHost)
		want string // facts
	}{
		"elsewhere on the host":          {hurt: func(*fakeHost) {}},
		"elsewhere, and expired":         {func(h *fakeHost) { h.serve(ca.leaf(at.Add(-time.Hour), time.Minute, "192.0.2.11")) }, "/pki/a.crt | 2026-11-21T08:01:00Z"},
		"elsewhere, for another address": {func(h *fakeHost) { h.serve(ca.leaf(at.Add(-time.Minute), time.Hour, "192.0.2.9")) }, "/pki/a.crt | 192.0.2.11"},
		"elsewhere, with another CA": {func(h *fakeHost) {
			h.put("/pki/ca.crt", string(certs.EncodeCerts(newCA("another").cert)))
		}, "kubelet.conf | /pki/ca.crt"},
		"in the image": {hurt: func(h *fakeHost) {
			h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--client-ca-file=/image/ca.crt", "--tls-cert-file=/image/a.crt", "--tls-private-key-file=/image/a.key")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := healthy(t)
			h.pki = "/in/container"
			h.certified(ca)
			h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--client-ca-file=/in/container/ca.crt", "--tls-cert-file=/in/container/a.crt",
				"--tls-private-key-file=/in/container/a.key")
			tt.hurt(h)
			text := ""
			for _, f := range run(t, h, false) {
				text += f.String()
			}
			if (text == "") != (tt.want == "") {
				t.Errorf("found %q", text)
			}
			fact.In(t, text, fact.Of(tt.want)...)
		})
	}
}

// Evidence comes from logs, which may contain anything.
func TestFindingsHoldNoSecret(t *testing.T) {
	h := healthy(t)
	h.crashed("kube-apiserver", "Error: unknown flag: --x; token abcdef.0123456789abcdef, http://me:hunter2@192.0.2.9/ "+strings.Repeat("0123456789abcdef", 4))
	text := ""
	for _, f := range run(t, h, true) {
		text += f.String()
	}
	for _, secret := range []string{"0123456789abcdef", "hunter2"} {
		if strings.Contains(text, secret) || !strings.Contains(text, "unknown flag") {
			t.Errorf("shows %s:\n%s", secret, text)
		}
	}
}
