// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"time"

	"github.com/pkg/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// Waits between two tries. A change takes some milliseconds, an election about a second.
	firstDelay   = 50 * time.Millisecond
	slowestDelay = 500 * time.Millisecond
	// answerTimeout bounds one question to one member, at least, so that a hanging member doesn't hold up the others.
	answerTimeout = 5 * time.Second
)

// answerTime is answerTimeout by default, and longer for a user who gives etcd more time.
func (r *Real) answerTime() time.Duration { return max(answerTimeout, r.options.Timeout/24) }

// clients has a client for each endpoint, to ask members in parallel: a single client for all asks them one at a time.
type clients []*clientv3.Client

func (r *Real) dial(ctx context.Context) (clients, error) {
	endpoints, err := r.options.Endpoints(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "find the endpoints of etcd")
	}
	if len(endpoints) == 0 {
		return nil, errors.New("no endpoint of etcd is known")
	}
	return r.connect(endpoints)
}

// connect opens no connection yet: the first call does.
func (r *Real) connect(endpoints []string) (all clients, err error) {
	trust, err := r.tls()
	if err != nil {
		return nil, err
	}
	for _, endpoint := range endpoints {
		c, err := newClient(endpoint, trust, r.options.Plain, r.answerTime())
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func newClient(endpoint string, trust *tls.Config, plain bool, limit time.Duration) (*clientv3.Client, error) {
	address, err := clientAddress(endpoint, plain)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(address, scheme) {
		trust = nil
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address},
		TLS:       trust,
		Logger:    zap.NewNop(),
		// No retries: Real.try looks at the membership before each try.
		MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(),
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstDelay, Multiplier: 2, MaxDelay: slowestDelay},
				MinConnectTimeout: limit,
			}),
		},
	})
	return c, errors.Wrap(err, endpoint)
}

// failFast ends a call as soon as the member can't be reached, with the reason. By default, the client asks gRPC to wait until
// the call's deadline, and then reports nothing but the timeout.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(options, grpc.WaitForReady(false))...)
}

const scheme = "https://"

// CheckClientURL returns an error unless a member of a control plane's etcd can serve its clients at this URL.
func CheckClientURL(text string) error {
	_, err := clientAddress(text, false)
	return err
}

// clientAddress returns the scheme and the host of a client URL. With plain, the scheme may be http.
func clientAddress(text string, plain bool) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && (!plain || u.Scheme != "http") || u.Host == "" {
		return "", errors.Errorf("%q is not a client URL of an etcd member (expected something like https://192.0.2.1:2379)", text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// CredentialsError means that this host's credentials can't be used, so nobody was asked.
type CredentialsError struct{ Err error }

func (e CredentialsError) Error() string { return e.Err.Error() }

func (e CredentialsError) Unwrap() error { return e.Err }

func (r *Real) tls() (*tls.Config, error) {
	trust, err := r.readTLS()
	if err != nil {
		return nil, CredentialsError{err}
	}
	return trust, nil
}

func (r *Real) readTLS() (*tls.Config, error) {
	o := r.options
	var files [3][]byte
	for i, path := range []string{o.CA, o.Cert, o.Key} {
		if path == "" && o.Plain {
			continue
		}
		var err error
		if files[i], err = o.ReadFile(path); err != nil {
			return nil, errors.WithMessage(err, "read the credentials for etcd")
		}
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if files[0] != nil { // otherwise the system's roots
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(files[0]) {
			return nil, errors.Errorf("%s contains no certificate", o.CA)
		}
	}
	if files[1] == nil && files[2] == nil {
		return trust, nil
	}
	pair, err := tls.X509KeyPair(files[1], files[2])
	if err != nil {
		return nil, errors.Wrapf(err, "%s and %s", o.Cert, o.Key)
	}
	trust.Certificates = []tls.Certificate{pair}
	return trust, nil
}

func (all clients) close() {
	for _, c := range all {
		_ = c.Close() // nothing left to lose
	}
}

// first asks all members in parallel, so a hanging member costs nothing, and returns the first answer within limit that every member
// would give. If there's none, it returns an error, preferably one that may pass, and best a late member's, which may still answer.
func first[T any](
	ctx context.Context, limit time.Duration, all clients, ask func(context.Context, *clientv3.Client) (T, error),
) (answer T, from *clientv3.Client, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct {
		answer T
		err    error
		i      int
	}
	results := make(chan result, len(all))
	for i, c := range all {
		go func() {
			answer, err := ask(ctx, c)
			results <- result{answer, named(c, err), i}
		}()
	}
	errs := make([]error, len(all))
	for range all {
		r := <-results
		if r.err == nil || !shouldAskNext(r.err) {
			return r.answer, all[r.i], r.err
		}
		errs[r.i] = r.err
	}
	for _, e := range errs {
		if err == nil || wrongCertificate(err) || TimedOut(e) && !TimedOut(err) {
			err = e
		}
	}
	return answer, nil, err
}

func named(c *clientv3.Client, err error) error {
	return errors.WithMessage(err, strings.TrimPrefix(c.Endpoints()[0], scheme))
}

// RefusesRemoval reports whether Leave failed because etcd would lose its quorum.
func RefusesRemoval(err error) bool {
	return is(err, rpctypes.ErrGRPCUnhealthy) || is(err, rpctypes.ErrGRPCMemberNotEnoughStarted)
}

// shouldAskNext reports whether another member may answer better: the last can't be reached, has no leader, or is a learner.
func shouldAskNext(err error) bool {
	switch code(err) {
	case codes.DeadlineExceeded:
		return true
	case codes.Unavailable:
		return !refused(err)
	}
	return is(err, rpctypes.ErrGRPCNotSupportedForLearner) || is(err, rpctypes.ErrGRPCNotLeader)
}

// refused recognizes the cluster's own answers, which any member gives.
func refused(err error) bool {
	return RefusesRemoval(err) || is(err, rpctypes.ErrGRPCTooManyLearners) || is(err, rpctypes.ErrGRPCLearnerNotReady)
}

func isRetryable(err error) bool {
	var later retryableError
	if errors.As(err, &later) {
		return true
	}
	outdated := is(err, rpctypes.ErrGRPCMemberExist) || is(err, rpctypes.ErrGRPCPeerURLExist) ||
		is(err, rpctypes.ErrGRPCMemberNotFound) || is(err, rpctypes.ErrGRPCMemberNotLearner)
	return outdated || refused(err) || shouldAskNext(err) && !wrongCertificate(err) || code(err) == codes.Canceled
}

// wrongCertificate recognizes a connection that one side refuses, and will refuse again. gRPC keeps only the text of the cause.
func wrongCertificate(err error) bool {
	return code(err) == codes.Unavailable &&
		(strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "remote error: tls: "))
}

// CredentialsFail reports whether err says that this host's credentials can't be used, or that one side refuses the other's
// certificate.
func CredentialsFail(err error) bool {
	return errors.As(err, new(CredentialsError)) || err != nil && wrongCertificate(err)
}

// TimedOut reports whether err says that no answer came in time. A member that refuses connections, or can't be reached, has
// answered.
func TimedOut(err error) bool { return code(err) == codes.DeadlineExceeded }

func is(err, known error) bool { return errors.Is(err, rpctypes.Error(known)) }

// code returns the code of an error from etcd's client: etcd's own error, gRPC's, or the context's.
func code(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

type retryableError struct{ error }

func retryable(err error) error { return retryableError{err} }

func (e retryableError) Unwrap() error { return e.error }
