// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki keeps this host's certificates, keys and kubeconfig files, the rows of certs.Table: Store reads, checks, issues and
// writes them, Renewal renews them, and Expirations lists when they expire. Package certs computes their contents.
package pki

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Store is a node's PKI directory and kubeconfig files on this host.
type Store struct {
	Host   host.Host
	Config *config.Node
	UI     ui.UI
	// Unfinished means that the run that made the node didn't finish: its files for another configuration get replaced.
	Unfinished bool
}

// Files returns a row's paths: the certificate and its key, or the kubeconfig file with both.
func (s Store) Files(row certs.Spec) []string {
	if row.Kubeconfig != "" {
		return []string{filepath.Join(s.Config.Paths.Kubeconfigs, row.Kubeconfig)}
	}
	cert, key := s.paths(row)
	return []string{cert, key}
}

func (s Store) paths(row certs.Spec) (cert, key string) {
	dir := s.Config.Paths.PKI
	return filepath.Join(dir, row.CertFile()), filepath.Join(dir, row.KeyFile())
}

// Read returns a row's files in the PKI directory as PEM, nil for a file that doesn't exist.
func (s Store) Read(row certs.Spec) (cert, key []byte, err error) {
	certPath, keyPath := s.paths(row)
	if cert, err = host.ReadIfExists(s.Host, certPath); err != nil {
		return nil, nil, err
	}
	key, err = host.ReadIfExists(s.Host, keyPath)
	return cert, key, err
}

// CA returns a CA's pair by its row's name, without a key if that's elsewhere. It's an error if it's missing or can't sign.
func (s Store) CA(name string) (certs.Pair, error) {
	row, _ := certs.Find(s.Config, name)
	cert, key, err := s.Read(row)
	if err != nil {
		return certs.Pair{}, err
	}
	if certPath, _ := s.paths(row); cert == nil {
		return certs.Pair{}, fault.New(certPath+" does not exist, but is needed", fmt.Sprintf("for a new cluster, run `slipway init phase %s`; "+
			"for an existing one, copy it and its key from a control plane", row.Phase()))
	}
	pair, err := s.parse(row, cert, key)
	if err != nil {
		return certs.Pair{}, err
	}
	return pair, certs.Check(row, s.Config, pair, nil, s.Host.Now())
}

// Ensure keeps a row's certificate if it's right, refuses it if it's wrong, and issues it if it's missing. spare is a new key for
// the row, in case it needs a key; nil to generate it.
func (s Store) Ensure(row certs.Spec, spare crypto.Signer) error {
	if row.Kubeconfig != "" {
		return s.ensureKubeconfig(kubeconfig.SpecOf(s.Config, row), spare)
	}
	cert, key, err := s.Read(row)
	switch {
	case err != nil:
		return err
	case cert == nil:
		return s.issuePair(row, key, spare)
	}
	err = s.Check(row, cert, key)
	switch {
	case s.mayReplace(row, err):
		s.reportReplaced(err)
		return s.issuePair(row, key, nil)
	case err != nil:
		return err
	}
	return s.keepPair(row, cert, key)
}

// keepPair refuses a CA that couldn't sign all its certificates, before it signs any.
func (s Store) keepPair(row certs.Spec, cert, key []byte) error {
	if key == nil {
		s.UI.Printf("Keeping the certificate %q, whose key is not on this host", row.File)
		return nil
	}
	if row.IsCA() {
		pair, err := s.parse(row, cert, key)
		if err != nil {
			return err
		}
		if err := certs.CheckIssues(row, s.Config, pair, s.Host.Now()); err != nil {
			return err
		}
	}
	s.UI.Printf("Keeping the certificate and key %q", row.File)
	return nil
}

// mayReplace reports whether a row's files are wrong only because an unfinished run made them for another configuration. They
// aren't in use yet. A CA fits any configuration.
func (s Store) mayReplace(row certs.Spec, wrong error) bool {
	var faults *certs.Error
	return errors.As(wrong, &faults) && faults.Only(certs.MissingSAN, certs.WrongSubject, kubeconfig.WrongServer) &&
		!row.IsCA() && s.Unfinished &&
		!slices.ContainsFunc(s.Files(row), func(path string) bool { return !s.Host.Unchanged(path) })
}

func (s Store) reportReplaced(wrong error) {
	s.UI.Printf("Replacing an earlier run's files for another configuration: %s", strings.ReplaceAll(wrong.Error(), "\n", " "))
}

// Check checks an existing certificate and key, as read, against their row, and narrows the key's mode. Only a CA's key may be
// nil: it can be kept elsewhere.
func (s Store) Check(row certs.Spec, cert, key []byte) error {
	certPath, keyPath := s.paths(row)
	if key == nil && !row.IsCA() {
		return fault.New(fmt.Sprintf("%s exists without its key %s", certPath, keyPath),
			"put the key there, or delete the certificate and run the phase again")
	}
	if key != nil {
		if err := s.narrowMode(keyPath, key); err != nil {
			return err
		}
	}
	return s.checkPair(row, cert, key)
}

func (s Store) checkPair(row certs.Spec, cert, key []byte) error {
	pair, err := s.parse(row, cert, key)
	if err != nil {
		return err
	}
	var issuers []*x509.Certificate
	if !row.IsCA() {
		ca, err := s.CA(row.CA)
		if err != nil {
			return err
		}
		issuers = ca.Bundle()
	}
	return certs.Check(row, s.Config, pair, issuers, s.Host.Now())
}

// parse adds the remedy to an error.
func (s Store) parse(row certs.Spec, cert, key []byte) (certs.Pair, error) {
	pair, err := certs.ParsePair(cert, key)
	if err == nil {
		return pair, nil
	}
	certPath, keyPath := s.paths(row)
	err = errors.Wrapf(err, "%s and %s", certPath, keyPath)
	if row.IsCA() {
		return pair, fault.WithRemedy(err, "put the right CA there, from a backup or another control plane: a CA is never replaced, "+
			"because that would invalidate everything it has signed")
	}
	return pair, fault.WithRemedy(err, fmt.Sprintf("delete both and run `slipway init phase %s` with the same configuration, "+
		"or put the right files there", row.Phase()))
}

// issuePair issues a certificate for the existing or a new key.
func (s Store) issuePair(row certs.Spec, keyPEM []byte, spare crypto.Signer) error {
	_, keyPath := s.paths(row)
	key, err := s.keyFor(keyPath, keyPEM, spare)
	if err != nil {
		return err
	}
	var cert *x509.Certificate
	if row.IsCA() {
		cert, err = certs.NewCA(row, s.Config, key, s.Host.Now())
	} else {
		var ca certs.Pair
		if ca, err = s.CA(row.CA); err != nil {
			return err
		}
		cert, err = certs.Issue(row, s.Config, ca, key, s.Host.Now())
	}
	if err != nil {
		return err
	}
	s.UI.Printf("Generating the certificate and key %q", row.File)
	return s.writePair(row, certs.Pair{Cert: cert, Key: key})
}

func (s Store) NewKey() (crypto.Signer, error) {
	return certs.NewKey(s.Config.Cluster.EncryptionAlgorithm)
}

func (s Store) orNewKey(spare crypto.Signer) (crypto.Signer, error) {
	if spare != nil {
		return spare, nil
	}
	return s.NewKey()
}

// keyFor returns the key in a file, or a new key if there's no file.
func (s Store) keyFor(path string, keyPEM []byte, spare crypto.Signer) (crypto.Signer, error) {
	if keyPEM == nil {
		return s.orNewKey(spare)
	}
	key, err := certs.ParseKey(keyPEM)
	return key, fault.WithRemedy(errors.Wrap(err, path), "put the right key there, or delete it and run the phase again")
}

// writePair writes the key first: if the run is interrupted in between, the next run issues a certificate for that key.
func (s Store) writePair(row certs.Spec, pair certs.Pair) error {
	certPath, keyPath := s.paths(row)
	keyPEM, err := certs.EncodeKey(pair.Key)
	if err != nil {
		return err
	}
	for _, dir := range []string{s.Config.Paths.PKI, filepath.Dir(certPath)} {
		if err := s.Host.EnsureDir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := s.writePrivate(keyPath, keyPEM); err != nil {
		return err
	}
	_, err = s.Host.WriteFile(certPath, certs.EncodeCerts(pair.Cert), 0o644)
	return err
}
