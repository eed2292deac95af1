// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"time"

	api "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// The kinds of faults that a kubeconfig file has beyond those of its client
// certificate.
const (
	Malformed     certs.Kind = "malformed"
	WrongServer   certs.Kind = "wrong server" // kubeadm warns of this and keeps the file
	UntrustedCA   certs.Kind = "untrusted CA" // the client would not trust the API server
	NoCredentials certs.Kind = "no credentials"
)

// Check holds a kubeconfig file that exists already against its row; ca is
// what the cluster's CA file holds. Credentials and CAs that the file only
// points at, as kubelet.conf does once the kubelet rotates its certificate,
// are not looked into. All faults are found, in one *certs.Error.
func Check(data []byte, spec Spec, n *config.Node, ca []*x509.Certificate, now time.Time) error {
	faults := check(data, spec, ca, now)
	if len(faults) == 0 {
		return nil
	}
	file := path.Join(n.Paths.Kubeconfigs, spec.File)
	failure := &certs.Error{Spec: spec.Certificate(), Faults: faults, Where: file}
	if failure.Only(certs.Expired) && spec.Name != "kubelet" {
		failure.Advice = fmt.Sprintf("Run `slipway certs renew %s`.", spec.File)
	} else {
		failure.Advice = fmt.Sprintf("Delete it and run `slipway init phase kubeconfig %s` with the same configuration, "+
			"or put the right file there.", spec.Name)
	}
	return failure
}

func check(data []byte, spec Spec, ca []*x509.Certificate, now time.Time) []certs.Fault {
	file, err := parse(data)
	if err != nil {
		return []certs.Fault{{Kind: Malformed, Detail: err.Error()}}
	}
	faults := checkCluster(file.Clusters[file.cluster].Cluster, spec, ca)
	return append(faults, checkUser(file.AuthInfos[file.user].AuthInfo, spec, ca, now)...)
}

func checkCluster(cluster api.Cluster, spec Spec, ca []*x509.Certificate) []certs.Fault {
	var faults []certs.Fault
	if cluster.Server != spec.Server {
		faults = append(faults, certs.Fault{Kind: WrongServer, Detail: fmt.Sprintf(
			"its server is %q, not %q", cluster.Server, spec.Server)})
	}
	data := cluster.CertificateAuthorityData
	if len(data) == 0 && cluster.CertificateAuthority != "" {
		return faults
	}
	if len(data) == 0 {
		return append(faults, certs.Fault{Kind: UntrustedCA, Detail: "it names no CA to trust (certificate-authority-data)"})
	}
	trusted, err := certs.ParseCerts(data)
	if err != nil {
		return append(faults, certs.Fault{Kind: UntrustedCA, Detail: "its certificate-authority-data: " + err.Error()})
	}
	if !slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return slices.ContainsFunc(trusted, c.Equal) }) {
		faults = append(faults, certs.Fault{Kind: UntrustedCA, Detail: "it trusts another CA than the cluster's"})
	}
	return faults
}

func checkUser(user api.AuthInfo, spec Spec, ca []*x509.Certificate, now time.Time) []certs.Fault {
	if len(user.ClientCertificateData)+len(user.ClientKeyData) == 0 {
		if hasCredentials(user) {
			return nil
		}
		return []certs.Fault{{Kind: NoCredentials, Detail: "its user has no credentials"}}
	}
	if len(user.ClientCertificateData) == 0 || len(user.ClientKeyData) == 0 {
		return []certs.Fault{{Kind: NoCredentials, Detail: "its user has only one of " +
			"client-certificate-data and client-key-data"}}
	}
	pair, err := certs.ParsePair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return []certs.Fault{{Kind: Malformed, Detail: "its client certificate: " + err.Error()}}
	}
	return certs.Faults(spec.Certificate(), pair, ca, now)
}

// hasCredentials tells of those that are kept outside of the file.
func hasCredentials(user api.AuthInfo) bool {
	return user.ClientCertificate != "" || user.Token != "" || user.TokenFile != "" ||
		user.Exec != nil || user.AuthProvider != nil
}
