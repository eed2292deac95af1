// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package zlint checks all certificates issued by Slipway against zlint's rules. It's a separate module, so that the product
// needs none of this.
package zlint

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	zx509 "github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// exempt maps the rules that a cluster's certificates don't follow to the reasons. The test fails if a rule finds nothing.
var exempt = map[string]string{
	// The Baseline Requirements are for CAs that browsers trust. Only the cluster itself trusts this one.
	"e_ca_country_name_missing":                      "a cluster has no country, and its CA is known by its key",
	"e_ca_organization_name_missing":                 "a cluster has no organization; in Kubernetes the field means a group of users",
	"e_ca_crl_sign_not_set":                          "the CA signs no revocation lists, for no component of Kubernetes reads one",
	"e_missing_crl_distrib_point":                    "as above: who must not come in any more loses their rights in RBAC",
	"e_sub_cert_aia_missing":                         "there is no OCSP responder, and the CA's certificate is in a file beside the leaf",
	"w_sub_cert_aia_does_not_contain_issuing_ca_url": "as above",
	"e_sub_cert_cert_policy_empty":                   "there is no policy that a validator could ask for",
	"e_sub_cert_certificate_policies_missing":        "as above",
	"e_dnsname_not_valid_tld":                        "names of Services and nodes are the cluster's own, not the internet's",
	"e_ext_san_contains_reserved_ip":                 "Services and nodes have private addresses; these are what clients dial",
	"e_server_cert_valid_time_longer_than_200_days":  "a year, as the configuration's default says; an upgrade renews in between",
	"w_server_cert_valid_time_longer_than_199_days":  "as above",
	"e_subject_common_name_not_exactly_from_san":     "the common name says which component it is, as with kubeadm; clients go by the alternative names",
	"w_subject_common_name_included":                 "as above",
	// All kubeadm clusters have these deviations from RFC 3279 and RFC 5280: either program renews the other's certificates, and a
	// renewal changes no usage. No verifier in Kubernetes checks it.
	"e_key_usage_and_extended_key_usage_inconsistent": "RSA clients may encipher keys, as with kubeadm; TLS 1.2 and later do not use it",
	"e_rsa_allowed_ku_no_encipherment_ca":             "an RSA CA may encipher keys, as with kubeadm; nobody asks it to",
	"w_ext_subject_key_identifier_missing_sub_cert":   "a leaf's identifier would help to find what it has issued, which is nothing",
}

// clusters are the variants with different certificate contents.
var clusters = map[string]string{
	"IPv4":          "networking: {serviceSubnet: 10.96.0.0/12}\n",
	"external etcd": "etcd: {external: {endpoints: ['https://192.0.2.9:2379'], caFile: /a, certFile: /b, keyFile: /c}}\n",
	"names of all kinds": "controlPlaneEndpoint: api.example.org:6443\nnetworking: {serviceSubnet: '10.96.0.0/12,fd00:10:96::/112'}\n" +
		"apiServer: {certSANs: ['*.example.org', 'fd00::1', API.example.com, 192.0.2.7]}\n" +
		"etcd: {local: {serverCertSANs: [etcd.example.org], peerCertSANs: [192.0.2.8]}}\n",
}

func TestZlint(t *testing.T) {
	used := map[string]bool{}
	for _, algorithm := range []config.EncryptionAlgorithm{
		config.RSA2048, config.RSA3072, config.RSA4096, config.ECDSAP256, config.ECDSAP384,
	} {
		key, err := certs.NewKey(algorithm)
		if err != nil {
			t.Fatal(err)
		}
		for name, document := range clusters {
			t.Run(fmt.Sprintf("%s, %s", name, algorithm), func(t *testing.T) {
				for row, cert := range issue(t, load(t, document, algorithm), key) {
					check(t, row, cert, used)
				}
			})
		}
	}
	for rule, reason := range exempt {
		if !used[rule] {
			t.Errorf("rule %s finds nothing: it needs no exemption (%s)", rule, reason)
		}
	}
}

func check(t *testing.T, row string, cert *x509.Certificate, used map[string]bool) {
	t.Helper()
	parsed, err := zx509.ParseCertificate(cert.Raw)
	if err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	for rule, result := range zlint.LintCertificate(parsed).Results {
		if result.Status < lint.Warn {
			continue
		}
		used[rule] = true
		if _, ok := exempt[rule]; !ok {
			about := lint.GlobalRegistry().ByName(rule)
			t.Errorf("%s: %s %s: %s %s (%s)", row, result.Status, rule, about.Description, result.Details, about.Citation)
		}
	}
}

// load loads a cluster's node as `init` does.
func load(t *testing.T, document string, algorithm config.EncryptionAlgorithm) *config.Node {
	t.Helper()
	text := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 192.0.2.11}\n" +
		"nodeRegistration: {name: cp-1, criSocket: 'unix:///run/containerd/containerd.sock'}\n---\n" +
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n" +
		"encryptionAlgorithm: " + string(algorithm) + "\n" + document
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "init.yaml", Data: []byte(text)}, config.InitFlags{}, config.Options{
		Facts:    config.HostFacts{Hostname: "cp-1"},
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// issue issues each row of the table, the kubeconfig files' clients, a renewal of each leaf, and the kubelet's serving
// certificate. They all share one key.
func issue(t *testing.T, n *config.Node, key crypto.Signer) map[string]*x509.Certificate {
	t.Helper()
	now := time.Now()
	issued, authorities := map[string]*x509.Certificate{}, map[string]certs.Pair{}
	keep := func(row string, cert *x509.Certificate, err error) {
		if err != nil {
			t.Fatal(err)
		}
		issued[row] = cert
	}
	for _, spec := range certs.Specs(n) {
		if spec.IsCA() {
			cert, err := certs.NewCA(spec, n, key, now)
			keep(spec.Name, cert, err)
			authorities[spec.Name] = certs.Pair{Cert: cert, Key: key}
			continue
		}
		cert, err := certs.Issue(spec, n, authorities[spec.CA], key, now)
		keep(spec.Name, cert, err)
		renewed, err := certs.Issue(certs.Renewal(spec, cert), n, authorities[spec.CA], key, now)
		keep(spec.Name+" renewed", renewed, err)
	}
	serving, err := certs.KubeletServing(n.Name, key, now, 365*24*time.Hour)
	keep("kubelet serving", serving, err)
	return issued
}
