// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// mayReplace reports whether a row's files are wrong only because an unfinished run made them for another configuration. They
// aren't in use yet. A CA fits any configuration.
func (s Store) mayReplace(row certs.Spec, wrong error) bool {
	var faults *certs.Error
	return errors.As(wrong, &faults) && faults.Only(certs.MissingSAN, certs.WrongSubject, kubeconfig.WrongServer) &&
		!row.IsCA() && s.Unfinished &&
		!slices.ContainsFunc(s.Files(row), func(path string) bool { return !s.Host.Unchanged(path) })
}

func (s Store) sayReplaced(wrong error) {
	s.UI.Printf("Replacing an earlier run's files for another configuration: %s", strings.ReplaceAll(wrong.Error(), "\n", " "))
}

func (s Store) reissuePair(row certs.Spec, key []byte, wrong error) error {
	s.sayReplaced(wrong)
	return s.issuePair(row, key, nil)
}
