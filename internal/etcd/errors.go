// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"

	"github.com/pkg/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// RefusesRemoval reports whether Leave failed because etcd would lose its quorum.
func RefusesRemoval(err error) bool {
	return is(err, rpctypes.ErrGRPCUnhealthy) || is(err, rpctypes.ErrGRPCMemberNotEnoughStarted)
}

// nextMayKnow reports whether another member may give a better answer: this one can't be reached, has no leader, or is itself a
// learner.
func nextMayKnow(err error) bool {
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

func passes(err error) bool {
	var later passingError
	if errors.As(err, &later) {
		return true
	}
	outdated := is(err, rpctypes.ErrGRPCMemberExist) || is(err, rpctypes.ErrGRPCPeerURLExist) ||
		is(err, rpctypes.ErrGRPCMemberNotFound) || is(err, rpctypes.ErrGRPCMemberNotLearner)
	return outdated || refused(err) || nextMayKnow(err) && !wrongCertificate(err) || code(err) == codes.Canceled
}

// wrongCertificate recognizes a connection that one side refuses, and will refuse again. gRPC keeps only the text of the cause.
func wrongCertificate(err error) bool {
	return code(err) == codes.Unavailable &&
		(strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "remote error: tls: "))
}

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

type passingError struct{ error }

func passing(err error) error { return passingError{err} }

func (e passingError) Unwrap() error { return e.error }
