// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// Faults returns an error for each faulty certificate or kubeconfig file. It changes nothing. Another server in a kubeconfig file
// is no fault: Ensure warns of it. Nor is anything Ensure replaces because an unfinished run made it.
func (s Store) Faults() []error {
	var faults []error
	for _, row := range certs.Specs(s.Config) {
		check := s.checkFiles
		if row.Kubeconfig != "" {
			check = s.checkKubeconfig
		}
		if err := check(row); err != nil && !s.mayReplace(row, err) {
			faults = append(faults, err)
		}
	}
	return faults
}

func (s Store) checkFiles(row certs.Spec) error {
	cert, key, err := s.Read(row)
	if err != nil || cert == nil {
		return err
	}
	return s.checkPair(row, cert, key)
}

func (s Store) checkKubeconfig(row certs.Spec) error {
	ca, err := s.CA(row.CA)
	if err != nil {
		return nil //nolint:nilerr // checkFiles reports the CA
	}
	data, err := host.ReadIfExists(s.Host, s.Files(row)[0])
	if err != nil || data == nil {
		return err
	}
	err = kubeconfig.Check(data, kubeconfig.SpecOf(s.Config, row), s.Config, ca.Bundle(), s.Host.Now())
	var faults *certs.Error
	if errors.As(err, &faults) && faults.Only(kubeconfig.WrongServer) {
		return nil
	}
	return err
}
