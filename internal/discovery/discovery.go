// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package discovery finds out where a joining node's cluster is, and which certificates to trust. ByToken follows the protocol at
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#configmap-signing; ByFile reads a kubeconfig. Both
// return only verified data and write nothing. internal/joining builds the node's configuration from the result.
package discovery

import (
	"crypto/x509"
	"fmt"
)

// Cluster is a verified cluster.
type Cluster struct {
	// Server is the URL of the API, always https.
	Server string
	// CA are the only certificates to trust, and never empty.
	CA []*x509.Certificate
}

// Kind distinguishes failures.
type Kind string

const (
	Unreachable Kind = "unreachable"   // no connection, no answer in time, server errors
	Forbidden   Kind = "forbidden"     // anonymous users may not read cluster-info
	NotKube     Kind = "no API server" // a different kind of server answers
	// NoInfo says that the cluster has no ConfigMap cluster-info.
	NoInfo       Kind = "no cluster-info"
	Malformed    Kind = "malformed"     // cluster-info or file can't be used
	ManyClusters Kind = "many clusters" // or none: unclear which to trust
	UnknownToken Kind = "unknown token" // nothing is signed with it
	BadSignature Kind = "bad signature" // signed, but not with this token's secret
	WrongPin     Kind = "wrong pin"     // no certificate has a pinned hash
	WrongServer  Kind = "wrong server"  // its certificate isn't from the trusted CA, or not for this name
	Changed      Kind = "changed"       // the two answers differ
	ClockApart   Kind = "clock apart"   // this host's clock and the server's differ
)

// Error is a failed discovery. It never contains a token's secret.
type Error struct {
	Kind Kind
	// Where is the endpoint or the file.
	Where string
	// Message describes the problem and the remedy.
	Message string
	// Cause is the last connection error, if the connection failed.
	Cause error
}

func (e *Error) Error() string {
	text := e.Message
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }

func failure(kind Kind, where, format string, args ...any) *Error {
	return &Error{Kind: kind, Where: where, Message: fmt.Sprintf(format, args...)}
}
