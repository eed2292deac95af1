// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"syscall"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// advise adds what to do about an error that no further try can mend.
func (c *conn) advise(err error) error {
	if err == nil {
		return nil
	}
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; %s", err, c.adviseUnauthorized(time.Now()))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; the user of %s lacks this right", err, c.kubeconfig)
	case errors.As(err, &authority):
		return fmt.Errorf("%w; the server at %s is not of the cluster that %s was made for, or the cluster's CA was replaced since: compare the CA in both, and make the kubeconfig again with `slipway init phase kubeconfig`",
			err, c.base.Host, c.kubeconfig)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w; check the clocks of this host and of %s, and the certificates with `slipway certs check-expiration`",
			err, c.base.Host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; nothing listens there: on a host of the control plane `slipway diagnose` tells what keeps the API server from running", err)
	case errors.As(err, &hostname):
		return fmt.Errorf("%w; add the name or address to apiServer.certSANs, and renew the API server's certificate", err)
	}
	return err
}

func (c *conn) adviseUnauthorized(now time.Time) string {
	block, _ := pem.Decode(c.clientCert)
	if block != nil {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && now.After(cert.NotAfter) {
			return fmt.Sprintf("the client certificate in %s expired on %s; see `slipway certs check-expiration`, and renew it",
				c.kubeconfig, cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Sprintf("the server does not accept the credentials in %s: are they of this cluster? `slipway certs check-expiration` tells whether they have expired", c.kubeconfig)
}
