// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

// ProbeError is a probe's response with a status other than 200.
type ProbeError struct {
	URL    string
	Status int
	Body   string // its first 4 KiB, trimmed
}

func (e *ProbeError) Error() string {
	text := fmt.Sprintf("GET %s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Body == "" {
		return text
	}
	return text + ": " + e.Body
}

// Remote sends packets. A dry run doesn't get a Remote: its answers are in plan/remote.go.
type Remote interface {
	// Probe does one HTTP GET of a health endpoint and returns nil for status 200. Any other status is a *ProbeError. It uses no
	// proxy and follows no redirect.
	Probe(ctx context.Context, p Probe) error
	// Fetch is a Probe that returns the response's body, at most 64 KiB.
	Fetch(ctx context.Context, p Probe) ([]byte, error)
	// Date does one HTTP GET and returns the server's clock, to the second, from the Date header of a response with any status.
	Date(ctx context.Context, p Probe) (time.Time, error)
	// LookupHost resolves a name with the host's resolver.
	LookupHost(ctx context.Context, name string) ([]netip.Addr, error)
	// Answers reports whether a machine has this address: it accepts a TCP connection to the port, or refuses it, or its firewall
	// does. false means that it was silent until ctx ended, or that its network has nobody at the address. If no packet could be
	// sent, or a firewall on the way rejects them, there's an error.
	Answers(ctx context.Context, at netip.AddrPort) (bool, error)
	// RunProgram runs a program of the operator's that takes a file elsewhere. The first of the words names it; no shell reads
	// them. It gets this process's environment, and only ctx bounds it. The error has the last line of its output.
	RunProgram(ctx context.Context, words []string) error
}

// Probe is one request to a health endpoint.
type Probe struct {
	URL string
	// CA is the PEM bundle that the server's certificate must chain to. If it's empty, any certificate is accepted: the
	// components' health endpoints on loopback have self-signed certificates, and the response holds nothing secret.
	CA []byte
	// ServerName is the name that the certificate must be valid for; empty for the URL's host. It needs a CA.
	ServerName string
	// ClientCert and ClientKey are PEM, empty for none.
	ClientCert, ClientKey []byte
}
