// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto/rand"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// User is whom `kubeconfig user` writes a kubeconfig for.
type User struct {
	Name   string
	Groups []string
	// Token is shown instead of a certificate if it is set.
	Token config.Secret
	// Validity is how long the certificate is valid, at most as long as its
	// CA.
	Validity time.Duration
}

// UserKubeconfig returns a kubeconfig file for a user, who shows a token or a
// new certificate that this host's CA signs.
func UserKubeconfig(env *Env, user User) ([]byte, error) {
	spec := kubeconfig.Specs(env.Config)[0] // the administrator's: it leads to the cluster's endpoint
	spec.Name, spec.File = "user", "the user's certificate"
	spec.CommonName, spec.Organization = user.Name, user.Groups
	ca, err := pairStore{env}.ca(spec.Certificate())
	if err != nil {
		return nil, err
	}
	if !user.Token.IsZero() {
		return kubeconfig.BuildWithToken(spec, env.Config, ca.Bundle(), user.Token)
	}
	if user.Validity <= 0 {
		return nil, errors.Errorf("--validity-period %s: must be more than nothing", user.Validity)
	}
	n := *env.Config
	n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: user.Validity}
	key, err := newKey(env)
	if err != nil {
		return nil, err
	}
	cert, err := certs.Issue(spec.Certificate(), &n, ca, key, env.Host.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if cert.NotAfter.Equal(ca.Cert.NotAfter) {
		env.UI.Warnf("The certificate ends with its CA, at %s", cert.NotAfter.Format(time.RFC3339))
	}
	return kubeconfig.Build(spec, &n, ca.Bundle(), certs.Pair{Cert: cert, Key: key})
}
