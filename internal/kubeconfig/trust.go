// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/x509"
	"slices"

	"github.com/slipway-k8s/slipway/certs"
)

// Trusting returns a client's kubeconfig file with trust in every CA of its cluster. It keeps other CAs that somebody has added,
// such as a load balancer's, but no earlier CA of the same name. A file that trusts none of the cluster's CAs, or refers to a
// file with CAs, stays as it is.
func Trusting(data []byte, ca []*x509.Certificate) (trusting []byte, changed bool, err error) {
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

// CAs returns the CAs that a kubeconfig file's client trusts, or the path of their file. Both are empty for the host's CAs.
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
