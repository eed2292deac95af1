// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

// Secret is a value that only the last event of a run may contain.
type Secret interface {
	Reveal() string
	IsZero() bool
}

// Outcome is what a run has made, for the next command to use. What the user
// does not want shown is not in it.
type Outcome struct {
	// CACertHashes pin the cluster's CA: sha256:HEX of each certificate's public
	// key, as a joining node needs them.
	CACertHashes []string
	// Token lets a node join, and CertificateKey makes it a control plane.
	Token, CertificateKey Secret
	// JoinCommand and ControlPlaneJoinCommand are complete, each on one line.
	JoinCommand, ControlPlaneJoinCommand Secret
}

// add takes the fields of o that are set.
func (all *Outcome) add(o Outcome) {
	if o.CACertHashes != nil {
		all.CACertHashes = o.CACertHashes
	}
	for _, f := range []struct {
		to   *Secret
		from Secret
	}{
		{&all.Token, o.Token}, {&all.CertificateKey, o.CertificateKey},
		{&all.JoinCommand, o.JoinCommand}, {&all.ControlPlaneJoinCommand, o.ControlPlaneJoinCommand},
	} {
		if f.from != nil {
			*f.to = f.from
		}
	}
}
