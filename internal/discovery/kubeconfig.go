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

// clusterOf reads the one cluster of a kubeconfig. Of two, nobody could say
// which is meant.
func clusterOf(where string, kubeconfig []byte) (Cluster, error) {
	file, err := parse(where, kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	if len(file.Clusters) != 1 {
		return Cluster{}, failure(ManyClusters, where, "the kubeconfig describes %d clusters instead of one", len(file.Clusters))
	}
	return trustedCluster(where, file.Clusters[0].Cluster)
}

// parse passes over fields that it does not know, as kubectl does: tools keep
// notes of their own in kubeconfigs. Nothing of them goes any further.
func parse(where string, kubeconfig []byte) (api.Config, error) {
	var file api.Config
	// What the decoder says may quote a credential.
	if err := yaml.Unmarshal(kubeconfig, &file); err != nil || file.Kind != "Config" && file.Kind != "" {
		return api.Config{}, failure(Malformed, where, "it is not a kubeconfig")
	}
	return file, nil
}

func trustedCluster(where string, c api.Cluster) (Cluster, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return Cluster{}, failure(Malformed, where, "the kubeconfig's server is no https URL")
	}
	if c.InsecureSkipTLSVerify {
		return Cluster{}, failure(Malformed, where, "the kubeconfig says insecure-skip-tls-verify: a node must know whom it trusts")
	}
	if len(c.CertificateAuthorityData) == 0 {
		return Cluster{}, failure(Malformed, where, "the kubeconfig has no certificate-authority-data: a node must know whom it trusts; what ConfigMap kube-public/cluster-info holds has it")
	}
	ca, err := certificates(c.CertificateAuthorityData)
	if err != nil {
		return Cluster{}, failure(Malformed, where, "the kubeconfig's certificate-authority-data: %v", err)
	}
	return Cluster{Server: c.Server, CA: ca}, nil
}

// certificates reads a PEM bundle of certificates and nothing else.
func certificates(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, errors.New("it holds something else than certificates")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.Errorf("certificate %d is malformed", len(list)+1)
		}
		list, data = append(list, cert), rest
	}
	if len(list) == 0 {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return list, nil
}
