// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/retry"
)

// Waits between two tries. The first is short because the most frequent errors, such as a conflict or a namespace being created,
// pass in milliseconds.
const (
	firstDelay   = 20 * time.Millisecond
	slowestDelay = time.Second
	// pollDelay suits waits for something on this host or one hop away.
	pollDelay = 50 * time.Millisecond
	// startTime is how long a starting server may forbid everything, on a busy machine.
	startTime = time.Minute
)

// policy retries errors that can pass, and respects Retry-After. slowest bounds the wait between two tries.
func policy(slowest time.Duration) retry.Policy {
	return retry.Policy{First: firstDelay, Slowest: slowest, Jitter: true, Passes: passes, After: retryAfter}
}

// usual is the policy of calls that don't wait for anything in particular.
func usual() retry.Policy { return policy(slowestDelay) }

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

// passes reports whether another try can succeed: after a conflict, too many requests, trouble in the server, a lost connection,
// or the lack of a namespace the API server is about to create.
func passes(err error) bool {
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

// wrongServer recognizes connections that fail before a request is sent and will fail again: the name is unknown, or the
// certificate is wrong.
func wrongServer(err error) bool {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	return errors.As(err, &certificate) || isX509(err) || errors.As(err, &name) && name.IsNotFound
}

func isX509(err error) bool {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	return errors.As(err, &authority) || errors.As(err, &invalid) || errors.As(err, &hostname)
}

// orForbidden also retries a 403, until d from now. The server's authorizer sees new bindings a moment after they're written.
func orForbidden(p retry.Policy, d time.Duration) retry.Policy {
	end, passes := time.Now().Add(d), p.Passes
	p.Passes = func(err error) bool {
		return passes(err) || apierrors.IsForbidden(err) && time.Now().Before(end)
	}
	return p
}

// untilSettled retries every error, until an error of a lasting kind has stayed for d without a break. Another cluster's API
// server may still hold the port for a moment, and a starting server forbids everything.
func untilSettled(p retry.Policy, d time.Duration) retry.Policy {
	var since time.Time
	passes := p.Passes
	p.Passes = func(err error) bool {
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
