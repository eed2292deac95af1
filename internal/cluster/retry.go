// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Waits between two tries. The first is short because what is met most often,
// a conflict or a namespace that is just being made, passes in milliseconds.
const (
	firstDelay   = 20 * time.Millisecond
	slowestDelay = time.Second
	// pollDelay suits waiting for something on this host or one hop away.
	pollDelay = 50 * time.Millisecond
)

// policy says how retry goes on.
type policy struct {
	// slowest bounds the wait between two tries, which doubles from
	// firstDelay.
	slowest time.Duration
	// passes tells whether another try can succeed after this error.
	passes func(error) bool
}

// usual is the policy of every call that waits for nothing in particular.
var usual = policy{slowestDelay, passes}

// retry calls op until it succeeds, fails for good, or ctx ends; then the
// error is the last one of op that ctx did not cause.
func retry(ctx context.Context, p policy, op func(context.Context) error) error {
	start := time.Now()
	var last error
	delay := firstDelay
	for tries := 1; ; tries++ {
		err := op(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !p.passes(err) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if stop := sleep(ctx, max(jitter(min(delay, p.slowest)), retryAfter(err))); stop != nil {
			return fmt.Errorf("%w; gave up after %s (tries: %d): %w",
				last, time.Since(start).Round(time.Millisecond), tries, stop)
		}
		delay = min(2*delay, p.slowest)
	}
}

// sleep returns early, with the reason, when ctx ends or will end before d is
// over.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && d > slowestDelay && time.Until(deadline) < d {
		return errors.Wrapf(context.DeadlineExceeded, "the server asks to wait %s, longer than is left", d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// jitter keeps calls that failed together from coming back together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// retryAfter is how long the server asks to be left alone, zero if it does not.
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

// noAnswerError is a request whose answer did not arrive, whole: whether the
// server has done it is unknown.
type noAnswerError struct{ error }

func (e noAnswerError) Unwrap() error { return e.error }

// notYetError is an answer that another try may see changed.
type notYetError struct{ error }

func (e notYetError) Unwrap() error { return e.error }

// passes tells whether what failed can succeed when it is tried again: a
// conflict, too many requests, the server's own trouble, a lost connection, a
// namespace that the API server is about to create.
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

// namespaceMissing recognises what creating an object in a missing namespace
// gives. The API server makes kube-system and kube-public itself, a moment
// after it begins to serve.
func namespaceMissing(status metav1.Status) bool {
	return status.Code == 404 && status.Details != nil && status.Details.Kind == "namespaces"
}

// wrongServer recognises connections that fail before a request is sent and
// will fail again: the name is unknown, or the certificate is not the right
// one.
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

// orForbidden takes a 403 for one that may pass within d of now, and leaves
// the rest to p. New bindings reach the server's authorizer a moment after
// they were written.
func orForbidden(p policy, d time.Duration) policy {
	end := time.Now().Add(d)
	return policy{p.slowest, func(err error) bool {
		return p.passes(err) || apierrors.IsForbidden(err) && time.Now().Before(end)
	}}
}

// untilSettled takes every error for one that may pass, except one that has
// been there, of a lasting kind, for d without a break. Another cluster's API
// server may still hold the port for a moment, and a starting one forbids all.
func untilSettled(p policy, d time.Duration) policy {
	var since time.Time
	return policy{p.slowest, func(err error) bool {
		if p.passes(err) || apierrors.IsForbidden(err) {
			since = time.Time{}
			return true
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) < d
	}}
}
