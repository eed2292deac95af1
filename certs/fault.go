// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what is wrong with a certificate, for those who decide what to do
// about it.
type Kind string

// The kinds of faults.
const (
	KeyMismatch  Kind = "key mismatch"  // the key file belongs to another certificate
	WeakKey      Kind = "weak key"      // RSA below 2048 bits, or a curve that TLS does not know
	NotYetValid  Kind = "not yet valid" // the validity begins later than now
	Expired      Kind = "expired"       // the validity is over
	NotCA        Kind = "not a CA"      // a CA that may not sign certificates
	WrongIssuer  Kind = "wrong issuer"  // a leaf that its CA did not sign
	Restricted   Kind = "restricted"    // the CA's constraints forbid the leaf
	WrongUsage   Kind = "wrong usage"   // a leaf that may not serve or may not be a client
	MissingSAN   Kind = "missing SAN"   // a name or address by which others connect is not covered
	WrongSubject Kind = "wrong subject" // a client that would be taken for somebody else
)

// Fault is one thing wrong with a certificate.
type Fault struct {
	Kind   Kind
	Detail string
}

// Error is everything wrong with a certificate that exists already, and what
// mends it. Wrapping keeps it reachable with errors.As.
type Error struct {
	Faults []Fault
	// Where names the file or files at fault.
	Where string
	// Advice is what to do about it: one or more whole sentences.
	Advice string
}

// Error lists each fault on a line of its own when there are several.
func (e *Error) Error() string {
	if len(e.Faults) == 1 {
		return fmt.Sprintf("%s: %s. %s", e.Where, e.Faults[0].Detail, e.Advice)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults:\n", e.Where, len(e.Faults))
	for _, fault := range e.Faults {
		fmt.Fprintf(&b, "  - %s\n", fault.Detail)
	}
	b.WriteString(e.Advice)
	return b.String()
}

// Only tells whether every fault is of one of the kinds, so that a caller may
// take some of them for a warning.
func (e *Error) Only(kinds ...Kind) bool {
	for _, fault := range e.Faults {
		if !slices.Contains(kinds, fault.Kind) {
			return false
		}
	}
	return true
}
