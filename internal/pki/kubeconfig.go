// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// ensureKubeconfig accepts a file with another server: an administrator may have set a load balancer's or a proxy's.
func (s Store) ensureKubeconfig(spec kubeconfig.Spec, spare crypto.Signer) error {
	ca, err := s.CA(spec.Certificate.CA)
	if err != nil {
		return err
	}
	path := s.Files(spec.Certificate)[0]
	data, err := host.ReadIfExists(s.Host, path)
	if err != nil {
		return err
	}
	if data == nil {
		return s.writeKubeconfig(spec, path, ca, spare)
	}
	err = kubeconfig.Check(data, spec, s.Config, ca.Bundle(), s.Host.Now())
	var faults *certs.Error
	switch {
	case s.mayReplace(spec.Certificate, err):
		s.reportReplaced(err)
		return s.writeKubeconfig(spec, path, ca, spare)
	case errors.As(err, &faults) && faults.Only(kubeconfig.WrongServer):
		ui.WarnError(s.UI, err)
	case err != nil:
		return err
	}
	s.UI.Printf("Keeping %s", path)
	return s.narrowMode(path, data)
}

func (s Store) writeKubeconfig(spec kubeconfig.Spec, path string, ca certs.Pair, spare crypto.Signer) error {
	key, err := s.orNewKey(spare)
	if err != nil {
		return err
	}
	cert, err := certs.Issue(spec.Certificate, s.Config, ca, key, s.Host.Now())
	if err != nil {
		return err
	}
	data, err := kubeconfig.Build(spec, s.Config, ca.Bundle(), certs.Pair{Cert: cert, Key: key})
	if err != nil {
		return err
	}
	s.UI.Printf("Writing %s", path)
	if err := s.Host.EnsureDir(s.Config.Paths.Kubeconfigs, 0o755); err != nil {
		return err
	}
	return s.writePrivate(path, data)
}

// User is a user of the cluster.
type User struct {
	Name   string
	Groups []string
	// Token replaces the client certificate if it's set.
	Token    config.Secret
	Validity time.Duration // how long the certificate is valid, but no longer than its CA
}

// UserKubeconfig returns a kubeconfig file for a user, with a token or with a new certificate signed by the CA on this host.
func (s Store) UserKubeconfig(user User) ([]byte, error) {
	row, _ := certs.Find(s.Config, certs.Admin)
	row.Name, row.Kubeconfig = "user", "the user's certificate"
	row.CommonName, row.Organization = user.Name, user.Groups
	spec := kubeconfig.SpecOf(s.Config, row)
	ca, err := s.CA(row.CA)
	if err != nil {
		return nil, err
	}
	if !user.Token.IsZero() {
		return kubeconfig.BuildWithToken(spec, s.Config, ca.Bundle(), user.Token)
	}
	if user.Validity <= 0 {
		return nil, errors.Errorf("--validity-period %s: must be positive", user.Validity)
	}
	n := *s.Config
	n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: user.Validity}
	key, err := s.NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := certs.Issue(row, &n, ca, key, s.Host.Now())
	if err != nil {
		return nil, err
	}
	if cert.NotAfter.Equal(ca.Cert.NotAfter) {
		s.UI.Warnf("The certificate expires together with its CA, at %s", cert.NotAfter.Format(time.RFC3339))
	}
	return kubeconfig.Build(spec, &n, ca.Bundle(), certs.Pair{Cert: cert, Key: key})
}

// Current returns a row's current certificate, not a CA's; nil if there's none, or if a kubeconfig has other credentials.
func (s Store) Current(row certs.Spec) (*x509.Certificate, error) {
	path := s.Files(row)[0]
	data, err := host.ReadIfExists(s.Host, path)
	if err != nil || data == nil {
		return nil, err
	}
	if row.Kubeconfig != "" {
		var file string
		data, file, err = kubeconfig.ClientCertificate(data)
		if errors.Is(err, kubeconfig.ErrOtherCredentials) {
			return nil, nil
		}
		if err == nil && file != "" {
			data, err = s.Host.ReadFile(kubeconfig.Resolve(path, file))
		}
		if err != nil {
			return nil, unreadable(row, path, err)
		}
	}
	cert, err := certs.FirstCert(data)
	if err != nil {
		return nil, unreadable(row, path, err)
	}
	return cert, nil
}

func unreadable(row certs.Spec, path string, err error) error {
	return fault.WithRemedy(errors.Wrap(err, path), fmt.Sprintf("delete %s and run `slipway init phase %s` with the same configuration, "+
		"or put the right file there", path, row.Phase()))
}

// Replace replaces a row's certificate and key. A kubeconfig file then trusts this host's CAs as they are now; the rest stays.
func (s Store) Replace(row certs.Spec, pair certs.Pair) error {
	if row.Kubeconfig == "" {
		return s.writePair(row, pair)
	}
	path := s.Files(row)[0]
	data, err := s.Host.ReadFile(path)
	if err != nil {
		return err
	}
	ca, err := s.CA(row.CA)
	if err != nil {
		return err
	}
	if data, err = kubeconfig.Renewed(data, pair); err == nil {
		data, _, err = kubeconfig.TrustCAs(data, ca.Bundle())
	}
	if err != nil {
		return errors.Wrap(err, path)
	}
	return s.writePrivate(path, data)
}

// TrustInKubelet makes the kubelet trust this host's CAs, and reports whether it didn't before. Its credentials are its own.
func (s Store) TrustInKubelet() (changed bool, err error) {
	path := s.Config.Paths.KubeletKubeconfig()
	data, err := host.ReadIfExists(s.Host, path)
	if err != nil || data == nil {
		return false, err
	}
	ca, err := s.CA(certs.CA)
	if err != nil {
		return false, err
	}
	data, changed, err = kubeconfig.TrustCAs(data, ca.Bundle())
	if err != nil {
		return false, errors.Wrap(err, path)
	}
	if !changed {
		return false, nil
	}
	s.UI.Printf("Writing the CAs in ca.crt to %s", path)
	return true, s.writePrivate(path, data)
}
