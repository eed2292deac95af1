// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestGolden compares the certificates with kubeadm's in each reference case.
func TestGolden(t *testing.T) {
	for _, name := range []string{"default", "podcidr", "external-etcd", "dualstack"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(filepath.Join(goldenDir, name, "certs.tsv"))
			if err != nil {
				t.Fatal(err)
			}
			n := fixture.GoldenNode(t, filepath.Join(goldenDir, name, "input.yaml"))
			pairs := issueAll(t, n, rsaKey())
			var rows []string
			for _, spec := range Specs(n) {
				if spec.Kubeconfig != "" {
					continue // kubeconfigs.tsv
				}
				rows = append(rows, tsvLine(spec, pairs[spec.Name].Cert))
			}
			slices.Sort(rows)
			header, _, _ := strings.Cut(string(want), "\n")
			got := header + "\n" + strings.Join(rows, "")
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("certificates differ (-kubeadm +ours):\n%s", diff)
			}
		})
	}
}

// tsvLine renders a certificate as a line of certs.tsv.
func tsvLine(spec Spec, cert *x509.Certificate) string {
	names := slices.Sorted(slices.Values(cert.DNSNames))
	var ips, usages []string
	for _, ip := range cert.IPAddresses {
		ips = append(ips, ip.String())
	}
	for _, usage := range cert.ExtKeyUsage {
		usages = append(usages, map[x509.ExtKeyUsage]string{
			x509.ExtKeyUsageServerAuth: "serverAuth",
			x509.ExtKeyUsageClientAuth: "clientAuth",
		}[usage])
	}
	slices.Sort(ips)
	slices.Sort(usages)
	var key string
	switch public := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		key = fmt.Sprintf("RSA-%d", public.N.BitLen())
	case *ecdsa.PublicKey:
		key = fmt.Sprintf("ECDSA-P%d", public.Curve.Params().BitSize)
	}
	return strings.Join([]string{
		"kubernetes/pki/" + spec.CertFile(), cert.Subject.CommonName, strings.Join(cert.Subject.Organization, ","),
		cert.Issuer.CommonName, fmt.Sprint(cert.IsCA), strings.Join(names, ","), strings.Join(ips, ","),
		fmt.Sprintf("%b", cert.KeyUsage), strings.Join(usages, ","), key,
		fmt.Sprint(int(cert.NotAfter.Sub(cert.NotBefore) / time.Hour)),
	}, "\t") + "\n"
}
