// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// advise adds a reason and a remedy to an error that another try can't fix.
func (c *conn) advise(err error) error {
	reason, remedy := c.adviceFor(err)
	if reason != "" {
		err = errors.WithMessage(err, reason)
	}
	if remedy != "" {
		err = fault.WithRemedy(err, remedy)
	}
	return err
}

// adviceFor explains an error and says how to fix it; either result can be empty.
func (c *conn) adviceFor(err error) (reason, remedy string) {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	switch {
	case apierrors.IsUnauthorized(err):
		return c.adviseUnauthorized(time.Now())
	case apierrors.IsForbidden(err) && strings.HasPrefix(c.userName(), nodeUser):
		return c.adviseNode(err)
	case apierrors.IsForbidden(err):
		return "the user of " + c.kubeconfig + " lacks this right", "use the kubeconfig of a user who has it"
	case errors.As(err, &authority):
		return "", "compare the CA in " + c.kubeconfig + " with that of the server at " + c.host + ": if the cluster's CA was replaced, " +
			"or the file is from another cluster, make it again with `slipway init phase kubeconfig`"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "", "check the clocks of this host and of " + c.host + ", and the certificates with `slipway certs check-expiration`"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", "run `slipway diagnose` on the control plane: it shows what keeps the API server from running"
	case errors.As(err, &hostname):
		return "", "add the name or address to apiServer.certSANs, and renew the API server's certificate"
	}
	return "", ""
}

// nodeUser is the prefix of kubelets' user names: https://kubernetes.io/docs/reference/access-authn-authz/node/
const nodeUser = "system:node:"

// clientCert returns the client certificate of a configuration; nil without one. A kubelet's is in a separate file.
func clientCert(cfg *rest.Config) *x509.Certificate {
	data := cfg.CertData
	if len(data) == 0 && cfg.CertFile != "" {
		data, _ = os.ReadFile(cfg.CertFile) // the first request reports an error
	}
	if list, err := cert.ParseCertsPEM(data); err == nil {
		return list[0]
	}
	return nil
}

// userName returns the user in the client certificate; empty without one.
func (c *conn) userName() string {
	if c.clientCert == nil {
		return ""
	}
	return c.clientCert.Subject.CommonName
}

// adviseNode is for a kubelet's credentials: they have a node's rights, and only for that node.
func (c *conn) adviseNode(err error) (reason, remedy string) {
	node := strings.TrimPrefix(c.userName(), nodeUser)
	if strings.Contains(err.Error(), "only its own") || strings.Contains(err.Error(), "is not allowed to modify node") {
		return "the certificate in " + c.kubeconfig + " is of node " + node,
			"give this host or its kubelet that name again, or run `slipway reset` and join with the new one"
	}
	return "the API server does not give " + nodeUser + node + " the rights of a node",
		"each API server needs Node and RBAC in --authorization-mode (Node,RBAC is the default), or in its AuthorizationConfiguration"
}

func (c *conn) adviseUnauthorized(now time.Time) (reason, remedy string) {
	if cert := c.clientCert; cert != nil && now.After(cert.NotAfter) {
		return "the client certificate in " + c.kubeconfig + " expired on " + cert.NotAfter.UTC().Format(time.RFC3339),
			"renew it with `slipway certs renew all`; `slipway certs check-expiration` shows what else has expired"
	}
	return "the server does not accept the credentials in " + c.kubeconfig,
		"check that they are from this cluster, and run `slipway certs check-expiration` to see whether they have expired"
}
