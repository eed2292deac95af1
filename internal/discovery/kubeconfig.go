// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"

	"github.com/pkg/errors"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// clusterOf reads a kubeconfig's only cluster. With two, it would be unclear which is meant.
func clusterOf(where string, kubeconfig []byte) (Cluster, error) {
	file, err := parse(where, kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	if len(file.Clusters) != 1 {
		return Cluster{}, failure(ManyClusters, where, "the kubeconfig has %d clusters instead of one", len(file.Clusters))
	}
	return trustedCluster(where, file.Clusters[0].Cluster)
}

// parse ignores unknown fields, as kubectl does: some tools add their own. It doesn't pass them on.
func parse(where string, kubeconfig []byte) (api.Config, error) {
	var file api.Config
	// The decoder's error may quote a credential.
	if err := yaml.Unmarshal(kubeconfig, &file); err != nil || file.Kind != "Config" && file.Kind != "" {
		return api.Config{}, failure(Malformed, where, "it is not a kubeconfig")
	}
	return file, nil
}

func trustedCluster(where string, c api.Cluster) (Cluster, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return Cluster{}, failure(Malformed, where, "the kubeconfig's server is not an https URL")
	}
	if c.InsecureSkipTLSVerify {
		return Cluster{}, failure(Malformed, where, "the kubeconfig has insecure-skip-tls-verify, but a node must verify its cluster")
	}
	if len(c.CertificateAuthorityData) == 0 {
		return Cluster{}, failure(Malformed, where, "the kubeconfig has no certificate-authority-data, but a node must verify its cluster; the kubeconfig in ConfigMap kube-public/cluster-info has it")
	}
	ca, err := certificates(c.CertificateAuthorityData)
	if err != nil {
		return Cluster{}, failure(Malformed, where, "the kubeconfig's certificate-authority-data: %v", err)
	}
	return Cluster{Server: c.Server, CA: ca}, nil
}

// certificates reads a PEM bundle that may contain nothing but certificates.
func certificates(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, errors.New("it contains something other than certificates")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.Errorf("certificate %d is malformed", len(list)+1)
		}
		list, data = append(list, cert), rest
	}
	if len(list) == 0 {
		return nil, errors.New("it contains no PEM certificate")
	}
	return list, nil
}
