// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/rand"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
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
		s.sayReplaced(err)
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
	cert, err := certs.Issue(spec.Certificate, s.Config, ca, key, s.Host.Now(), rand.Reader)
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
