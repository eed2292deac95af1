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
	"github.com/slipway-k8s/slipway/internal/fault"
)

// The kinds of faults in a kubeconfig file, besides its client certificate's.
const (
	Malformed     = "malformed"
	WrongServer   = "wrong server" // kubeadm warns of this and keeps the file
	UntrustedCA   = "untrusted CA" // the client wouldn't trust the API server
	NoCredentials = "no credentials"
)

// Check checks an existing kubeconfig file; ca is the content of the cluster's CA file. It doesn't check other files the
// kubeconfig refers to, as kubelet.conf does once its certificate rotates. The error is a *certs.Error with all faults.
func Check(data []byte, spec Spec, n *config.Node, ca []*x509.Certificate, now time.Time) error {
	faults := check(data, spec, ca, now)
	if len(faults) == 0 {
		return nil
	}
	failure := &certs.Error{Faults: faults, Where: path.Join(n.Paths.Kubeconfigs, spec.File())}
	if failure.Only(certs.Expired) && spec.Certificate.Renewable() {
		failure.Fix = fmt.Sprintf("run `slipway certs renew %s`", spec.Certificate.Name)
	} else {
		failure.Fix = fmt.Sprintf("delete %s and run `slipway init phase %s` with the same configuration, "+
			"or put the right file there", failure.Where, spec.Certificate.Phase())
	}
	return failure
}

func check(data []byte, spec Spec, ca []*x509.Certificate, now time.Time) []fault.Finding {
	file, err := parse(data)
	if err != nil {
		return []fault.Finding{failed(Malformed, "%v", err)}
	}
	faults := checkCluster(file.Clusters[file.cluster].Cluster, spec, ca)
	return append(faults, checkUser(file.AuthInfos[file.user].AuthInfo, spec, ca, now)...)
}

func failed(name, format string, args ...any) fault.Finding {
	return fault.NewFinding(name, fault.Error, "", format, args...)
}

func checkCluster(cluster api.Cluster, spec Spec, ca []*x509.Certificate) []fault.Finding {
	var faults []fault.Finding
	if cluster.Server != spec.Server {
		faults = append(faults, failed(WrongServer, "the server is %q, not %q", cluster.Server, spec.Server))
	}
	data := cluster.CertificateAuthorityData
	if len(data) == 0 && cluster.CertificateAuthority != "" {
		return faults
	}
	if len(data) == 0 {
		return append(faults, failed(UntrustedCA, "no CA to trust (certificate-authority-data)"))
	}
	trusted, err := certs.ParseCerts(data)
	if err != nil {
		return append(faults, failed(UntrustedCA, "certificate-authority-data: %v", err))
	}
	if !slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return slices.ContainsFunc(trusted, c.Equal) }) {
		faults = append(faults, failed(UntrustedCA, "trusts another CA than the cluster's"))
	}
	return faults
}

func checkUser(user api.AuthInfo, spec Spec, ca []*x509.Certificate, now time.Time) []fault.Finding {
	cert, key := user.ClientCertificateData, user.ClientKeyData
	switch {
	case len(cert)+len(key) == 0 && !hasCredentials(user):
		return []fault.Finding{failed(NoCredentials, "the user has no credentials")}
	case len(cert) == 0 && len(key) > 0 && user.ClientCertificate == "":
		return []fault.Finding{failed(NoCredentials, "the user has a client key, but no client certificate")}
	case len(key) == 0 && len(cert) > 0 && user.ClientKey == "":
		return []fault.Finding{failed(NoCredentials, "the user has a client certificate, but no client key")}
	case len(cert) == 0:
		return nil
	case len(key) == 0:
		key = nil // it's in another file
	}
	pair, err := certs.ParsePair(cert, key)
	if err != nil {
		return []fault.Finding{failed(Malformed, "client credentials: %v", err)}
	}
	faults := certs.Faults(spec.Certificate, pair, ca, now)
	for i := range faults {
		faults[i].Message = "client certificate: " + faults[i].Message
	}
	return faults
}

// hasCredentials reports whether the user has credentials outside the file.
func hasCredentials(user api.AuthInfo) bool {
	return user.ClientCertificate != "" || user.Token != "" || user.TokenFile != "" ||
		user.Exec != nil || user.AuthProvider != nil
}
