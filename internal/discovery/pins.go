// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Pinned returns the certificates in list whose hash is in pins, and CAs that chain to them. It leaves out all others.
func Pinned(list []*x509.Certificate, pins []string, now time.Time) []*x509.Certificate {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	isPinned := func(c *x509.Certificate) bool {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		hash := "sha256:" + hex.EncodeToString(sum[:])
		return slices.ContainsFunc(pins, func(pin string) bool { return strings.EqualFold(pin, hash) })
	}
	for _, c := range list {
		if isPinned(c) {
			roots.AddCert(c)
		} else {
			others.AddCert(c)
		}
	}
	var trusted []*x509.Certificate
	for _, c := range list {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		// A pinned certificate is trusted by its hash, despite its dates: if they're wrong, the next connection fails and says
		// so.
		if isPinned(c) || err == nil && c.IsCA {
			trusted = append(trusted, c)
		}
	}
	return trusted
}
