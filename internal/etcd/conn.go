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
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

const (
	// Waits between two tries. A change under way takes some milliseconds, an
	// election about a second.
	firstDelay   = 50 * time.Millisecond
	slowestDelay = 500 * time.Millisecond
	// answerTime bounds one question to one member, so that one that hangs
	// does not keep the others from being asked.
	answerTime = 3 * time.Second
)

// conns are the members that may be asked.
type conns []*grpc.ClientConn

// dial prepares the connections.
func (r *Real) dial(ctx context.Context) (conns, error) {
	endpoints, err := r.options.Endpoints(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "find out where etcd's members are")
	}
	if len(endpoints) == 0 {
		return nil, errors.New("nothing says where etcd's members are")
	}
	trust, err := r.credentials()
	if err != nil {
		return nil, err
	}
	var all conns
	for _, endpoint := range endpoints {
		conn, err := connect(endpoint, trust)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, conn)
	}
	return all, nil
}

// connect begins no connection yet: the first call does.
func connect(endpoint string, trust credentials.TransportCredentials) (*grpc.ClientConn, error) {
	address, err := clientAddress(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(scheme+address, grpc.WithTransportCredentials(trust), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstDelay, Multiplier: 2, MaxDelay: slowestDelay},
			MinConnectTimeout: answerTime,
		}))
	return conn, errors.Wrap(err, endpoint)
}

// scheme tells gRPC to take an address as it is.
const scheme = "passthrough:///"

// CheckClientURL returns an error for a URL that no member of a control plane's
// etcd serves its clients at.
func CheckClientURL(text string) error {
	_, err := clientAddress(text)
	return err
}

func clientAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", errors.Errorf("%q is not a client URL of an etcd member, such as https://192.0.2.1:2379", text)
	}
	return u.Host, nil
}

func (r *Real) credentials() (credentials.TransportCredentials, error) {
	o := r.options
	var files [3][]byte
	for i, path := range []string{o.CA, o.Cert, o.Key} {
		var err error
		if files[i], err = o.ReadFile(path); err != nil {
			return nil, errors.WithMessage(err, "what etcd's members are to be asked with")
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(files[0]) {
		return nil, errors.Errorf("%s holds no certificate", o.CA)
	}
	pair, err := tls.X509KeyPair(files[1], files[2])
	if err != nil {
		return nil, errors.Wrapf(err, "%s and %s", o.Cert, o.Key)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

func (all conns) close() {
	for _, c := range all {
		_ = c.Close() // its only error is that it is closed already
	}
}

// first asks all members side by side, so that one that hangs costs nothing,
// and takes the first answer that another member would give, too. If there is
// none, the error is one that may pass, if there is such a one.
func first[T any](ctx context.Context, all conns, ask func(context.Context, client) (T, error)) (answer T, from client, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	type result struct {
		answer T
		err    error
		i      int
	}
	results := make(chan result, len(all))
	for i, c := range all {
		go func() {
			answer, err := ask(ctx, client{c})
			results <- result{answer, named(c, err), i}
		}()
	}
	errs := make([]error, len(all))
	for range all {
		r := <-results
		if r.err == nil || !nextMayKnow(r.err) {
			return r.answer, client{all[r.i]}, r.err
		}
		errs[r.i] = r.err
	}
	for _, e := range errs {
		if err == nil || wrongCertificate(err) {
			err = e
		}
	}
	return answer, client{}, err
}

// named adds the address of the member that an error is from.
func named(c *grpc.ClientConn, err error) error {
	return errors.WithMessage(err, strings.TrimPrefix(c.Target(), scheme))
}

// nextMayKnow tells whether another member may answer better: this one is not
// there, has no leader, or is a learner itself.
func nextMayKnow(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return true
	case codes.Unavailable:
		return !refused(err)
	}
	return is(err, rpctypes.ErrGRPCNotSupportedForLearner) || is(err, rpctypes.ErrGRPCNotLeader)
}

// refused are answers of the cluster, whichever member gives them.
func refused(err error) bool {
	return is(err, rpctypes.ErrGRPCUnhealthy) || is(err, rpctypes.ErrGRPCTooManyLearners) || is(err, rpctypes.ErrGRPCLearnerNotReady) ||
		is(err, rpctypes.ErrGRPCMemberNotEnoughStarted)
}

// passes tells whether the same may succeed later.
func passes(err error) bool {
	var later passingError
	if errors.As(err, &later) {
		return true
	}
	again := is(err, rpctypes.ErrGRPCMemberExist) || is(err, rpctypes.ErrGRPCPeerURLExist) ||
		is(err, rpctypes.ErrGRPCMemberNotFound) || is(err, rpctypes.ErrGRPCMemberNotLearner) // read again
	return again || refused(err) || nextMayKnow(err) && !wrongCertificate(err) || status.Code(err) == codes.Canceled
}

// wrongCertificate recognises a connection that one of its ends refuses, and
// will refuse again. gRPC keeps nothing of the cause but its text.
func wrongCertificate(err error) bool {
	text := status.Convert(err).Message()
	return status.Code(err) == codes.Unavailable && (strings.Contains(text, "x509: ") || strings.Contains(text, "remote error: tls: "))
}

// is compares by the text: that is all of an error of etcd that crosses the
// network.
func is(err, known error) bool {
	s, ok := status.FromError(err)
	return err != nil && ok && strings.Contains(s.Message(), status.Convert(known).Message())
}

// passingError is an error that may pass.
type passingError struct{ error }

func passing(err error) error { return passingError{err} }

func (e passingError) Unwrap() error { return e.error }
