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

// conns are the members that may be asked, in order.
type conns []*grpc.ClientConn

// dial prepares the connections.
func (r *Real) dial(ctx context.Context) (conns, error) {
	endpoints, err := r.options.Endpoints(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "find out where etcd's members are")
	}
	return r.connect(endpoints)
}

// connect prepares connections to endpoints.
func (r *Real) connect(endpoints []string) (conns, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("nothing says where etcd's members are")
	}
	trust, err := r.credentials()
	if err != nil {
		return nil, err
	}
	var all conns
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			all.close()
			return nil, errors.Errorf("%q is no client URL of an etcd member, such as https://192.0.2.1:2379", endpoint)
		}
		conn, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(trust), grpc.WithNoProxy(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstDelay, Multiplier: 2, MaxDelay: slowestDelay},
				MinConnectTimeout: answerTime,
			}))
		if err != nil {
			all.close()
			return nil, errors.Wrap(err, endpoint)
		}
		all = append(all, conn)
	}
	return all, nil
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

// each asks one member after another until one answers; its answer counts. If
// none does, the error is one that may pass, if there is such a one.
func (all conns) each(ctx context.Context, ask func(context.Context, client) (bool, error)) (done bool, err error) {
	var first error
	for _, c := range all {
		limited, cancel := context.WithTimeout(ctx, answerTime)
		done, err = ask(limited, client{c})
		cancel()
		if err == nil || !nextMayKnow(err) {
			return done, errors.WithMessage(err, c.Target()[len("passthrough:///"):])
		}
		if first == nil || wrongCertificate(first) {
			first = errors.WithMessage(err, c.Target()[len("passthrough:///"):])
		}
	}
	return false, first
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
