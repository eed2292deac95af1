// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// Waits between two tries. The first is short: the most frequent errors, a conflict or a missing namespace, pass in milliseconds.
const (
	firstDelay   = 20 * time.Millisecond
	slowestDelay = time.Second
	// pollDelay suits waits for something on this host or one hop away.
	pollDelay = 50 * time.Millisecond
	// nameTimeout is how long a name may be unknown: one name server may not know what another does, or a record is being replaced.
	nameTimeout = 10 * time.Second
	// startTimeout is how long a starting server may forbid everything, on a busy machine.
	startTimeout = time.Minute
)

// policy retries errors that can pass, and respects Retry-After. slowest bounds the wait between two tries.
func policy(slowest time.Duration) retry.Policy {
	end := time.Now().Add(nameTimeout)
	return retry.Policy{First: firstDelay, Slowest: slowest, Jitter: true, After: retryAfter, Retryable: func(err error) bool {
		return isRetryable(err) || unknownName(err) && time.Now().Before(end)
	}}
}

// defaultPolicy is the policy of calls that don't wait for anything in particular.
func defaultPolicy() retry.Policy { return policy(slowestDelay) }

// retryAfter is how long the server asks to wait; zero if it doesn't.
func retryAfter(err error) time.Duration {
	status, ok := statusOf(err)
	if !ok || status.Details == nil {
		return 0
	}
	return time.Duration(status.Details.RetryAfterSeconds) * time.Second
}

func statusOf(err error) (metav1.Status, bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}, false
	}
	return status.Status(), true
}

// noAnswerError is a request whose answer didn't arrive completely. The server may have processed it.
type noAnswerError struct{ error }

func (e noAnswerError) Unwrap() error { return e.error }

// notYetError is an answer that may be different next time.
type notYetError struct{ error }

func (e notYetError) Unwrap() error { return e.error }

// isRetryable reports whether another try can succeed: after a conflict, too many requests, trouble in the server, a lost
// connection, or the lack of a namespace the API server is about to create.
func isRetryable(err error) bool {
	var notYet notYetError
	if errors.As(err, &notYet) {
		return true
	}
	if status, ok := statusOf(err); ok {
		return status.Code == 429 || status.Code >= 500 || apierrors.IsConflict(err) || namespaceMissing(status)
	}
	var noAnswer noAnswerError
	return errors.As(err, &noAnswer) && !wrongServer(err)
}

// namespaceMissing recognizes a creation in a missing namespace. The API server makes kube-system and kube-public itself, a
// moment after it begins to serve.
func namespaceMissing(status metav1.Status) bool {
	return status.Code == 404 && status.Details != nil && status.Details.Kind == "namespaces"
}

// wrongServer recognizes connections that fail before a request, and will again: an unknown name, or a wrong certificate.
func wrongServer(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	return errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &invalid) || errors.As(err, &hostname) ||
		unknownName(err)
}

// unknownName recognizes a name that a name server says doesn't exist.
func unknownName(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && name.IsNotFound
}

// orForbidden also retries a 403, until d from now. The server's authorizer sees new bindings a moment after they're written.
func orForbidden(p retry.Policy, d time.Duration) retry.Policy {
	end, passes := time.Now().Add(d), p.Retryable
	p.Retryable = func(err error) bool {
		return passes(err) || apierrors.IsForbidden(err) && time.Now().Before(end)
	}
	return p
}

// untilSettled retries every error, until an error of a lasting kind has stayed for d without a break. Another cluster's API
// server may still hold the port for a moment, and a starting server forbids everything.
func untilSettled(p retry.Policy, d time.Duration) retry.Policy {
	var since time.Time
	passes := p.Retryable
	p.Retryable = func(err error) bool {
		if passes(err) || apierrors.IsForbidden(err) {
			since = time.Time{}
			return true
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) < d
	}
	return p
}

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
			"or the file is from another cluster, move it away, and make it again with `slipway init phase kubeconfig all`"
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

// clientCert returns the client certificate of a configuration; nil if it has none. A kubelet's is in a separate file.
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

// userName returns the user in the client certificate; empty without a certificate.
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
		remedy = "renew it with `slipway certs renew all`; `slipway certs check-expiration` shows what else has expired"
		if strings.HasPrefix(c.userName(), nodeUser) {
			remedy = "on a control plane, run `slipway certs renew all --restart`; a worker has to join again (`slipway token create --print-join-command` on a control plane)"
		}
		return "the client certificate in " + c.kubeconfig + " expired on " + cert.NotAfter.UTC().Format(time.RFC3339), remedy
	}
	return "the server does not accept the credentials in " + c.kubeconfig,
		"check that they are from this cluster, and run `slipway certs check-expiration` to see whether they have expired"
}
