// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Names of findings about a certificate, for code that chooses a reaction.
const (
	KeyMismatch  = "key mismatch"  // the key file belongs to another certificate
	WeakKey      = "weak key"      // RSA below 2048 bits, or a curve that TLS doesn't support
	NotYetValid  = "not yet valid" // the validity begins in the future
	Expired      = "expired"       // the validity is over
	NotCA        = "not a CA"      // a CA that mustn't sign certificates
	WrongIssuer  = "wrong issuer"  // a leaf that its CA didn't sign
	Restricted   = "restricted"    // the CA's constraints forbid the leaf
	WrongUsage   = "wrong usage"   // a leaf that mustn't be a server or a client
	MissingSAN   = "missing SAN"   // lacks a name or address that others connect to
	WrongSubject = "wrong subject" // a client that the server would take for another
)

// Error has all faults of an existing certificate, and the remedy.
type Error struct {
	Faults []fault.Finding
	Where  string
	Fix    string // the remedy, in the imperative
}

func (e *Error) Remedy() string { return e.Fix }

// Error lists several faults on a line each.
func (e *Error) Error() string {
	if len(e.Faults) == 1 {
		return fmt.Sprintf("%s: %s", e.Where, e.Faults[0].Message)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults:", e.Where, len(e.Faults))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  - %s", f.Message)
	}
	return b.String()
}

// Only reports whether every fault has one of the names. Callers treat some as a warning.
func (e *Error) Only(names ...string) bool {
	return !slices.ContainsFunc(e.Faults, func(f fault.Finding) bool { return !slices.Contains(names, f.Name) })
}
