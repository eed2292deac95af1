// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

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
	cert, err := certs.Issue(row, &n, ca, key, s.Host.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if cert.NotAfter.Equal(ca.Cert.NotAfter) {
		s.UI.Warnf("The certificate expires together with its CA, at %s", cert.NotAfter.Format(time.RFC3339))
	}
	return kubeconfig.Build(spec, &n, ca.Bundle(), certs.Pair{Cert: cert, Key: key})
}
