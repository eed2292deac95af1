// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of a fault, for code that chooses a reaction.
type Kind string

const (
	KeyMismatch  Kind = "key mismatch"  // the key file belongs to another certificate
	WeakKey      Kind = "weak key"      // RSA below 2048 bits, or a curve that TLS doesn't support
	NotYetValid  Kind = "not yet valid" // the validity begins in the future
	Expired      Kind = "expired"       // the validity is over
	NotCA        Kind = "not a CA"      // a CA that mustn't sign certificates
	WrongIssuer  Kind = "wrong issuer"  // a leaf that its CA didn't sign
	Restricted   Kind = "restricted"    // the CA's constraints forbid the leaf
	WrongUsage   Kind = "wrong usage"   // a leaf that mustn't be a server or a client
	MissingSAN   Kind = "missing SAN"   // lacks a name or address that others connect to
	WrongSubject Kind = "wrong subject" // a client that the server would take for another
)

// Fault is one thing wrong with a certificate.
type Fault struct {
	Kind   Kind
	Detail string
}

// Error has all faults of an existing certificate, and the remedy.
type Error struct {
	Faults []Fault
	Where  string
	// Fix is the remedy, in the imperative.
	Fix string
}

// Remedy returns Fix, for package fault.
func (e *Error) Remedy() string { return e.Fix }

// Error lists several faults on a line each.
func (e *Error) Error() string {
	if len(e.Faults) == 1 {
		return fmt.Sprintf("%s: %s", e.Where, e.Faults[0].Detail)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults:", e.Where, len(e.Faults))
	for _, fault := range e.Faults {
		fmt.Fprintf(&b, "\n  - %s", fault.Detail)
	}
	return b.String()
}

// Only reports whether every fault is of one of the kinds. Callers treat some kinds as a warning.
func (e *Error) Only(kinds ...Kind) bool {
	for _, fault := range e.Faults {
		if !slices.Contains(kinds, fault.Kind) {
			return false
		}
	}
	return true
}
