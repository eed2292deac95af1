// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"fmt"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

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
			data, err = s.Host.ReadFile(file)
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
		data, _, err = kubeconfig.Trusting(data, ca.Bundle())
	}
	if err != nil {
		return errors.Wrap(err, path)
	}
	return s.writePrivate(path, data)
}

// TrustInKubelet makes the kubelet trust this host's CAs, and reports whether it didn't before. Its credentials are its own.
func (s Store) TrustInKubelet() (changed bool, err error) {
	path := thisnode.KubeletConf(s.Config)
	data, err := host.ReadIfExists(s.Host, path)
	if err != nil || data == nil {
		return false, err
	}
	ca, err := s.CA(certs.CA)
	if err != nil {
		return false, err
	}
	data, changed, err = kubeconfig.Trusting(data, ca.Bundle())
	if err != nil {
		return false, errors.Wrap(err, path)
	}
	if !changed {
		return false, nil
	}
	s.UI.Printf("Writing the CAs in ca.crt to %s", path)
	return true, s.writePrivate(path, data)
}
