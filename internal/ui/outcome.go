// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

// Secret is a value that only a run's last event may contain.
type Secret interface {
	Reveal() string
	IsZero() bool
}

// Outcome is the result of a run, for the next command to use. It leaves out values the user wants hidden.
type Outcome struct {
	// CACertHashes pin the cluster's CA for joining nodes: sha256:HEX of each certificate's public key.
	CACertHashes []string
	// Token lets a node join, and CertificateKey makes it a control plane.
	Token, CertificateKey Secret
	// JoinCommand and ControlPlaneJoinCommand are complete, each on one line.
	JoinCommand, ControlPlaneJoinCommand Secret
}

// add takes the fields set in o.
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
