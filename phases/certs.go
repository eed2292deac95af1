// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

func certificates() Phase {
	return Phase{
		Name:    "certs",
		Summary: "Generate the certificates, keeping those that are there and right",
		Flags: []string{"apiserver-advertise-address", "apiserver-cert-extra-sans", "cert-dir", "config",
			"control-plane-endpoint", "dry-run", "kubernetes-version", "service-cidr", "service-dns-domain"},
		SideBySide: true,
		Children: []Phase{
			certificate(certs.CA, "The CA that the whole cluster trusts", ""),
			certificate("apiserver", "What the API server shows to its clients", certs.CA,
				"apiserver-advertise-address", "apiserver-cert-extra-sans", "control-plane-endpoint", "service-cidr", "service-dns-domain"),
			certificate("apiserver-kubelet-client", "What the API server shows to kubelets", certs.CA),
			certificate(certs.FrontProxyCA, "The CA of the extension API servers' front proxy", ""),
			certificate("front-proxy-client", "What the front proxy shows to extension API servers", certs.FrontProxyCA),
			certificate(certs.EtcdCA, "The CA of etcd's members and clients", ""),
			certificate("etcd-server", "What etcd shows to its clients", certs.EtcdCA),
			certificate("etcd-peer", "What etcd's members show to each other", certs.EtcdCA),
			certificate("etcd-healthcheck-client", "What probes show to etcd", certs.EtcdCA),
			certificate("apiserver-etcd-client", "What the API server shows to etcd", certs.EtcdCA),
			{
				Name:    "sa",
				Summary: "The key pair that signs service account tokens",
				Flags:   []string{"cert-dir", "config", "dry-run", "kubernetes-version"},
				RunWithKey: func(_ context.Context, env *Env, key crypto.Signer) error {
					return ensureServiceAccountKeys(env, key)
				},
				NeedsKey: unlessThere(serviceAccountFiles),
			},
		},
	}
}

// certificate is the phase of one row of the certificate table.
func certificate(name, summary, after string, flags ...string) Phase {
	p := Phase{
		Name:    name,
		Summary: summary,
		Flags:   append([]string{"cert-dir", "config", "dry-run", "kubernetes-version"}, flags...),
		RunWithKey: func(_ context.Context, env *Env, key crypto.Signer) error {
			return ensureCertificate(env, name, key)
		},
		NeedsKey: unlessThere(func(env *Env) []string { return pairFiles(env, name) }),
		Skip: func(env *Env) string {
			if _, needed := specOf(env.Config, name); !needed {
				return "etcd is external, its owner has the certificates"
			}
			return ""
		},
	}
	if after != "" {
		p.Needs = []string{"certs/" + after}
	}
	return p
}

func specOf(n *config.Node, name string) (certs.Spec, bool) {
	specs := certs.Specs(n)
	i := slices.IndexFunc(specs, func(s certs.Spec) bool { return s.Name == name })
	if i < 0 {
		return certs.Spec{}, false
	}
	return specs[i], true
}

func pairFiles(env *Env, name string) []string {
	spec, _ := specOf(env.Config, name)
	cert, key := pairStore{env}.paths(spec)
	return []string{cert, key}
}

// ensureCertificate keeps a pair that is there and right, refuses one that is
// wrong, and issues what is missing. The key is written first, so that a run
// that was cut off in between leaves a key for the next one to certify.
func ensureCertificate(env *Env, name string, spare crypto.Signer) error {
	spec, _ := specOf(env.Config, name)
	store := pairStore{env}
	cert, key, err := store.read(spec)
	switch {
	case err != nil:
		return err
	case cert != nil:
		if err := store.check(spec, cert, key); err != nil {
			return err
		}
		env.UI.Printf("Keeping the certificate and key %q", spec.File)
		return nil
	}
	return store.issue(spec, key, spare)
}

// pairStore is the PKI folder.
type pairStore struct{ env *Env }

func (s pairStore) paths(spec certs.Spec) (cert, key string) {
	dir := s.env.Config.Paths.PKI
	return filepath.Join(dir, spec.CertFile()), filepath.Join(dir, spec.KeyFile())
}

// read returns nil for what is not there.
func (s pairStore) read(spec certs.Spec) (cert, key []byte, err error) {
	certPath, keyPath := s.paths(spec)
	if cert, err = host.ReadIfExists(s.env.Host, certPath); err != nil {
		return nil, nil, err
	}
	key, err = host.ReadIfExists(s.env.Host, keyPath)
	return cert, key, err
}

// check holds what is there against its row. Only the key of a CA may be kept
// elsewhere.
func (s pairStore) check(spec certs.Spec, cert, key []byte) error {
	certPath, keyPath := s.paths(spec)
	if key == nil && !spec.IsCA() {
		return errors.Errorf("%s is there without its key %s; put the key there, or delete the certificate and run the phase again",
			certPath, keyPath)
	}
	pair, err := s.parse(spec, cert, key)
	if err != nil {
		return err
	}
	if key != nil {
		if err := narrowMode(s.env, keyPath, key); err != nil {
			return err
		}
	}
	var issuers []*x509.Certificate
	if !spec.IsCA() {
		ca, err := s.ca(spec)
		if err != nil {
			return err
		}
		issuers = ca.Bundle()
	}
	return certs.Check(spec, s.env.Config, pair, issuers, s.env.Host.Now())
}

// parse reads a row's files, and says of broken ones what to do.
func (s pairStore) parse(spec certs.Spec, cert, key []byte) (certs.Pair, error) {
	pair, err := certs.ParsePair(cert, key)
	if err == nil {
		return pair, nil
	}
	certPath, keyPath := s.paths(spec)
	if spec.IsCA() {
		return pair, errors.Errorf("%s and %s: %v. Put the right CA there, from a backup or another control plane. "+
			"A CA is never replaced: all that it signed would be worthless.", certPath, keyPath, err)
	}
	return pair, errors.Errorf("%s and %s: %v. Delete both and run `slipway init phase certs %s` with the same configuration, "+
		"or put the right files there.", certPath, keyPath, err, spec.Name)
}

// narrowMode takes a given key's wider permissions away; nothing is written
// where there is nothing to take. In a rootless control plane applyOwnerships
// does so with the keys of the components.
func narrowMode(env *Env, path string, key []byte) error {
	if manifests.Rootless(env.Config) && slices.ContainsFunc(manifests.Ownerships(env.Config), func(o manifests.Ownership) bool { return o.Path == path }) {
		return nil
	}
	narrowed, err := env.Host.WriteSecret(path, key)
	if narrowed {
		env.UI.Printf("%s did not have mode 0600: it has now, and only root reads it", path)
	}
	return err
}

// ca reads the pair of spec's issuer, which must be a CA that can sign.
func (s pairStore) ca(spec certs.Spec) (certs.Pair, error) {
	issuer, _ := specOf(s.env.Config, spec.CA)
	cert, key, err := s.read(issuer)
	if err != nil {
		return certs.Pair{}, err
	}
	if certPath, _ := s.paths(issuer); cert == nil {
		return certs.Pair{}, errors.Errorf("%s is needed and does not exist: for a new cluster, `slipway init phase certs %s` makes it; "+
			"for one that exists, copy it and its key from a control plane", certPath, issuer.Name)
	}
	pair, err := s.parse(issuer, cert, key)
	if err != nil {
		return certs.Pair{}, err
	}
	return pair, certs.Check(issuer, s.env.Config, pair, nil, s.env.Host.Now())
}

// issue makes the row's certificate, for the key that is there or a new one.
func (s pairStore) issue(spec certs.Spec, keyPEM []byte, spare crypto.Signer) error {
	key, err := s.keyFor(spec, keyPEM, spare)
	if err != nil {
		return err
	}
	n, now := s.env.Config, s.env.Host.Now()
	var cert *x509.Certificate
	if spec.IsCA() {
		cert, err = certs.NewCA(spec, n, key, now, rand.Reader)
	} else {
		var ca certs.Pair
		if ca, err = s.ca(spec); err != nil {
			return err
		}
		cert, err = certs.Issue(spec, n, ca, key, now, rand.Reader)
	}
	if err != nil {
		return err
	}
	s.env.UI.Printf("Generating the certificate and key %q", spec.File)
	return s.write(spec, cert, key)
}

func (s pairStore) keyFor(spec certs.Spec, keyPEM []byte, spare crypto.Signer) (crypto.Signer, error) {
	if keyPEM == nil {
		return orNewKey(s.env, spare)
	}
	_, path := s.paths(spec)
	key, err := certs.ParseKey(keyPEM)
	if err != nil {
		return nil, errors.Errorf("%s: %v. Put the right key there, or delete it and run the phase again.", path, err)
	}
	return key, nil
}

func (s pairStore) write(spec certs.Spec, cert *x509.Certificate, key crypto.Signer) error {
	certPath, keyPath := s.paths(spec)
	keyPEM, err := certs.EncodeKey(key)
	if err != nil {
		return err
	}
	if err := ensurePKIFolders(s.env, certPath); err != nil {
		return err
	}
	if err := writePrivate(s.env, keyPath, keyPEM); err != nil {
		return err
	}
	_, err = s.env.Host.WriteFile(certPath, certs.EncodeCerts(cert), 0o644)
	return err
}

func ensurePKIFolders(env *Env, certPath string) error {
	if err := env.Host.EnsureDir(env.Config.Paths.PKI, 0o755); err != nil {
		return err
	}
	return env.Host.EnsureDir(filepath.Dir(certPath), 0o755)
}

func serviceAccountFiles(env *Env) []string {
	return []string{filepath.Join(env.Config.Paths.PKI, "sa.key"), filepath.Join(env.Config.Paths.PKI, "sa.pub")}
}

// ensureServiceAccountKeys makes sa.key and, from it, sa.pub.
func ensureServiceAccountKeys(env *Env, spare crypto.Signer) error {
	paths := serviceAccountFiles(env)
	keyPath, pubPath := paths[0], paths[1]
	keyPEM, err := host.ReadIfExists(env.Host, keyPath)
	if err != nil {
		return err
	}
	pub, err := host.ReadIfExists(env.Host, pubPath)
	if err != nil {
		return err
	}
	switch {
	case keyPEM != nil && pub != nil:
		return keepServiceAccountKeys(env, keyPath, pubPath, keyPEM, pub)
	case keyPEM == nil && pub != nil:
		return errors.Errorf("%s is there without its private key %s; put the key there, or delete the public one and run the phase again",
			pubPath, keyPath)
	}
	return writeServiceAccountKeys(env, keyPath, pubPath, keyPEM, spare)
}

func keepServiceAccountKeys(env *Env, keyPath, pubPath string, key, pub []byte) error {
	if err := certs.CheckServiceAccountPair(key, pub); err != nil {
		return errors.Errorf("%s and %s: %v. Put the right files there; without sa.key delete both and run the phase again: "+
			"the tokens of all service accounts must then be issued again.", keyPath, pubPath, err)
	}
	env.UI.Printf("Keeping the key pair \"sa\"")
	return narrowMode(env, keyPath, key)
}

func writeServiceAccountKeys(env *Env, keyPath, pubPath string, keyPEM []byte, spare crypto.Signer) error {
	key, err := pairStore{env}.keyFor(certs.Spec{File: "sa"}, keyPEM, spare)
	if err != nil {
		return err
	}
	env.UI.Printf("Generating the key pair \"sa\"")
	if keyPEM, err = certs.EncodeKey(key); err != nil {
		return err
	}
	pub, err := certs.EncodePublicKey(key)
	if err != nil {
		return err
	}
	if err := env.Host.EnsureDir(env.Config.Paths.PKI, 0o755); err != nil {
		return err
	}
	if _, err := env.Host.WriteSecret(keyPath, keyPEM); err != nil {
		return err
	}
	_, err = env.Host.WriteFile(pubPath, pub, 0o600)
	return err
}
