// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
)

// CheckTrust compares, before a renewal, the certificates of this node's clients and servers with the CAs of the other sides, now
// and afterwards. If the renewal, or a CA it puts to use, would lock out a side, it's an error that shows both. A pair that
// doesn't fit either way is a warning, and so is an unreadable side.
func (r Renewal) CheckTrust() error {
	t := r.trust()
	t.all = r.Name == ""
	for _, row := range sorted(certs.Specs(r.Store.Config), certs.Spec.Renewable) {
		if r.Name != "" && r.Name != row.Name {
			continue
		}
		if _, err := r.Store.Current(row); err != nil {
			return err // it contains the remedy; the renewal would end there
		}
		if !r.canRenew(row) {
			continue
		}
		ca, err := r.Store.CA(row.CA)
		if err != nil {
			return err
		}
		t.renews(row, ca)
		if r.Due != nil {
			r.Due[row.Name] = true
		}
	}
	err := t.check("renewed or restarted")
	for _, warning := range t.warnings {
		r.Store.UI.Warn(warning.Message, warning.Remedy)
	}
	return err
}

// CheckTrustNow is CheckTrust for the current files, before components restart with them: a CA a component hasn't read yet must
// not lock anybody out. CheckTrust has warned of the rest.
func (r Renewal) CheckTrustNow() error {
	t := r.trust()
	t.asIs = true
	return t.check("restarted")
}

func (r Renewal) trust() *trust {
	return &trust{r: r, renewed: map[string]certs.Pair{}, former: map[string][]string{}, pods: map[string]*corev1.Pod{}}
}

// trust compares each side's certificate with the other side's CAs.
type trust struct {
	r Renewal
	// all means everything is renewed, asIs that the renewal is over.
	all, asIs bool
	// renewed maps the paths of certificates to renew to their future CAs.
	renewed map[string]certs.Pair
	// former maps signing CAs' paths to the key IDs of the CAs that signed until this renewal.
	former map[string][]string
	pods   map[string]*corev1.Pod

	faults   []string
	warnings []fault.Finding
}

// renews notes which CA will sign a row.
func (t *trust) renews(row certs.Spec, ca certs.Pair) {
	path := t.r.Store.Files(row)[0]
	t.renewed[path] = ca
	if cert, err := t.r.Store.Current(row); err == nil && Verify([]*x509.Certificate{cert}, []*x509.Certificate{ca.Cert}, cert.NotAfter) != nil {
		from, _ := certs.Find(t.r.Store.Config, row.CA)
		t.former[t.r.Store.Files(from)[0]] = append(t.former[t.r.Store.Files(from)[0]], string(cert.AuthorityKeyId))
	}
}

func (t *trust) check(undone string) error {
	t.components()
	t.kubeconfigs()
	t.kubelet()
	if len(t.faults) == 0 {
		return nil
	}
	return fault.New("clients and servers of this node would refuse each other's certificates, so nothing was "+undone+":\n  - "+strings.Join(t.faults, "\n  - "),
		"while a CA is being replaced, its file must hold both, and the first one signs. If it is etcd's, first put both into its file, then restart "+
			"etcd, which reads it only when it starts, and only then renew: see \"Replacing a CA\" in docs/cluster-life.md. "+
			"Or put the former CA and its key back. Then run the same command again")
}

// credential is an end of a connection: a shown certificate or accepted CAs, before and after the run. Without a path, it isn't
// configured.
type credential struct {
	path      string
	now, then []*x509.Certificate
	renewed   bool
	unread    string // the reason why it's unknown
}

// pair is one side's certificate with the other side's CAs. reader is the component that reads these CAs at its start.
type pair struct {
	client      string
	certificate credential
	verifier    string
	authorities credential
	reader      string
}

// compare notes a certificate that the other side won't accept. It ignores a pair if one end isn't configured.
func (t *trust) compare(p pair) {
	if p.certificate.path == "" || p.authorities.path == "" {
		return
	}
	if unread := cmp.Or(p.certificate.unread, p.authorities.unread); unread != "" {
		t.unchecked(fmt.Sprintf("whether %s accepts %s: %s", p.verifier, p.client, unread))
		return
	}
	if Verify(p.certificate.then, p.authorities.then, t.r.Store.Host.Now()) == nil {
		if t.tooEarly(p) {
			t.faults = append(t.faults, fmt.Sprintf("%s: %s will come from CA %s, which the running etcd may not accept, because it started before %s changed",
				p.client, p.certificate.path, issuerOf(p.certificate.then[0]), p.authorities.path))
		}
		return
	}
	message := fmt.Sprintf("%s: %s comes from CA %s, but %s accepts only %s (%s)",
		p.client, p.certificate.path, issuerOf(p.certificate.then[0]), p.verifier, listed(p.authorities.then), p.authorities.path)
	if t.breaksConnection(p) {
		t.faults = append(t.faults, message)
		return
	}
	t.warn(message+", with this run and without it",
		"put that CA into "+p.authorities.path+", or have the certificate signed by one that is in there: see \"Replacing a CA\" in docs/cluster-life.md")
}

// tooEarly reports whether another CA will sign a certificate for etcd before etcd has read that CA, at its start. etcd would
// refuse Slipway's question whether it can restart, and the restarted API server.
func (t *trust) tooEarly(p pair) bool {
	if p.reader != manifests.EtcdName || !p.certificate.renewed || p.client == asMember && t.startedAlone() {
		return false
	}
	return Verify(p.certificate.now, p.certificate.then[:1], p.certificate.now[0].NotAfter) != nil && t.unreadBy(p.reader, p.authorities.path)
}

// breaksConnection reports whether this run makes the other side refuse a certificate, or puts a CA to use that does: its file
// replaces the signing CA, or has changed since its reader started.
func (t *trust) breaksConnection(p pair) bool {
	if Verify(p.certificate.now, p.authorities.now, t.r.Store.Host.Now()) == nil {
		return true
	}
	if !t.all && !t.asIs && !p.certificate.renewed && !p.authorities.renewed {
		return false
	}
	return slices.Contains(t.former[p.authorities.path], string(p.certificate.now[0].AuthorityKeyId)) || t.unreadBy(p.reader, p.authorities.path)
}

func (t *trust) warn(message, remedy string) {
	w := fault.NewFinding("", fault.Warning, remedy, "%s", message)
	if !slices.ContainsFunc(t.warnings, func(other fault.Finding) bool { return other.Message == message }) {
		t.warnings = append(t.warnings, w)
	}
}

func (t *trust) unchecked(what string) { t.warn("Not checked: "+what, "") }

// Verify verifies a certificate as TLS does, at a moment when it's valid: dates don't matter here.
func Verify(chain, trusted []*x509.Certificate, now time.Time) error {
	leaf := chain[0]
	if now.After(leaf.NotAfter) {
		now = leaf.NotAfter
	}
	if now.Before(leaf.NotBefore) {
		now = leaf.NotBefore
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, ca := range trusted {
		options.Roots.AddCert(ca)
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(options)
	if err != nil && !now.Before(leaf.NotAfter) && slices.ContainsFunc(trusted, func(ca *x509.Certificate) bool { return signed(ca, leaf) }) {
		return nil // a CA with a later certificate and the same key signed it
	}
	return err
}

func signed(ca, leaf *x509.Certificate) bool {
	return bytes.Equal(leaf.RawIssuer, ca.RawSubject) && leaf.CheckSignatureFrom(ca) == nil
}

// issuerOf names the CA that signed a certificate; a CA stands for a certificate it will sign. Two CAs of a cluster mostly share
// a name, but not a key.
func issuerOf(shown *x509.Certificate) string {
	if shown.IsCA {
		return named(shown.Subject.String(), shown.SubjectKeyId)
	}
	return named(shown.Issuer.String(), shown.AuthorityKeyId)
}

func named(name string, keyID []byte) string {
	return fmt.Sprintf("%q (key %s)", name, hex.EncodeToString(keyID[:min(8, len(keyID))]))
}

func listed(list []*x509.Certificate) string {
	var names []string
	for _, ca := range list {
		names = append(names, named(ca.Subject.String(), ca.SubjectKeyId))
	}
	return strings.Join(names, " and ")
}
