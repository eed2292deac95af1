// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/x509"
	"slices"

	"github.com/slipway-k8s/slipway/certs"
)

// TrustCAs returns a client's kubeconfig file with trust in all CAs of its cluster. Somebody's own additions stay, such as a load
// balancer's CA, but no earlier CA of the same name. A file with none of the cluster's CAs, or CAs in another file, stays as it
// is.
func TrustCAs(data []byte, ca []*x509.Certificate) (trusting []byte, changed bool, err error) {
	file, err := parse(data)
	if err != nil {
		return nil, false, err
	}
	cluster := &file.Clusters[file.cluster].Cluster
	if len(cluster.CertificateAuthorityData) == 0 {
		return data, false, nil
	}
	have, err := certs.ParseCerts(cluster.CertificateAuthorityData)
	if err != nil {
		return nil, false, err
	}
	wanted := WithCAs(have, ca)
	if slices.EqualFunc(have, wanted, (*x509.Certificate).Equal) {
		return data, false, nil
	}
	cluster.CertificateAuthorityData = certs.EncodeCerts(wanted...)
	trusting, err = encode(file.Config)
	return trusting, err == nil, err
}

// WithCAs returns the certificates a client trusts after Trusting, given those it trusts now.
func WithCAs(have, ca []*x509.Certificate) []*x509.Certificate {
	ofCluster := func(c *x509.Certificate) bool {
		return slices.ContainsFunc(ca, func(own *x509.Certificate) bool { return string(own.RawSubject) == string(c.RawSubject) })
	}
	if !slices.ContainsFunc(have, ofCluster) {
		return have
	}
	wanted := slices.Clone(ca)
	for _, c := range have {
		if !ofCluster(c) {
			wanted = append(wanted, c)
		}
	}
	if len(have) == len(wanted) && !slices.ContainsFunc(wanted, func(c *x509.Certificate) bool { return !slices.ContainsFunc(have, c.Equal) }) {
		return have // in another order
	}
	return wanted
}

// CAs returns the CAs a kubeconfig file trusts, or the name of their file, for Resolve; neither for the host's CAs.
func CAs(data []byte) (trusted []*x509.Certificate, file string, err error) {
	p, err := parse(data)
	if err != nil {
		return nil, "", err
	}
	cluster := p.Clusters[p.cluster].Cluster
	if len(cluster.CertificateAuthorityData) == 0 {
		return nil, cluster.CertificateAuthority, nil
	}
	trusted, err = certs.ParseCerts(cluster.CertificateAuthorityData)
	return trusted, "", err
}
