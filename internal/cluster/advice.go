// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"syscall"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// advised is an error with what to do about it, which is said last.
type advised struct {
	error
	advice string
}

func (a advised) Error() string { return a.error.Error() + "; " + a.advice }

func (a advised) Unwrap() error { return a.error }

// advise adds what to do about an error that another try cannot fix.
func (c *conn) advise(err error) error {
	advice := c.adviceFor(err)
	if advice == "" {
		return err
	}
	return advised{err, advice}
}

func (c *conn) adviceFor(err error) string {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	switch {
	case apierrors.IsUnauthorized(err):
		return c.adviseUnauthorized(time.Now())
	case apierrors.IsForbidden(err):
		return "the user of " + c.kubeconfig + " lacks this right"
	case errors.As(err, &authority):
		return "the server at " + c.host + " is not of the cluster that " + c.kubeconfig + " was made for, or the cluster's CA was replaced since: " +
			"compare the CA in both, and make the kubeconfig again with `slipway init phase kubeconfig`"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "check the clocks of this host and of " + c.host + ", and the certificates with `slipway certs check-expiration`"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: on a control plane, `slipway diagnose` shows what keeps the API server from running"
	case errors.As(err, &hostname):
		return "add the name or address to apiServer.certSANs, and renew the API server's certificate"
	}
	return ""
}

func (c *conn) adviseUnauthorized(now time.Time) string {
	block, _ := pem.Decode(c.clientCert)
	if block != nil {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && now.After(cert.NotAfter) {
			return "the client certificate in " + c.kubeconfig + " expired on " + cert.NotAfter.UTC().Format(time.RFC3339) +
				"; see `slipway certs check-expiration`, and renew it"
		}
	}
	return "the server does not accept the credentials in " + c.kubeconfig +
		": are they of this cluster? `slipway certs check-expiration` shows whether they have expired"
}
