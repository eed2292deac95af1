// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto/rand"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestKeepsCAWithoutItsKey: nothing says that a key is kept which isn't here.
func TestKeepsCAWithoutItsKey(t *testing.T) {
	s := controlPlaneStage(t, Init())
	key := s.get(t, pkiDir+"ca.key")
	for _, have := range []string{"", key} {
		if have == "" {
			fatal(t, s.host.Remove(pkiDir+"ca.key"))
		} else {
			s.put(t, pkiDir+"ca.key", have)
		}
		s.said.Reset()
		s.play(t, certsCA())
		s.saidOnce(t, line{"Keeping", `"ca"`})
		if strings.Contains(s.said.String(), "certificate and key") != (have != "") {
			t.Errorf("said %s", s.said.String())
		}
	}
}

// TestRestrictedCAIsRefusedAtOnce: nothing is signed with a CA whose certificates would be refused.
func TestRestrictedCAIsRefusedAtOnce(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, certsCA())
	ca, err := s.pki().CA(certs.CA)
	fatal(t, err)
	template := *ca.Cert
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = []string{"example.org"}, true
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, ca.Key.Public(), ca.Key)
	fatal(t, err)
	restricted, err := x509.ParseCertificate(der)
	fatal(t, err)
	s.putCA(t, certs.Pair{Cert: restricted, Key: ca.Key})
	err = Run(t.Context(), s.Env, []Phase{certificates(), kubeconfigs()}, Options{})
	fact.Error(t, err, pkiDir+"ca.crt", "not permitted")
	if _, err := s.host.Lstat(pkiDir + "apiserver.crt"); err == nil {
		t.Error("apiserver.crt was issued")
	}
	var failure *certs.Error
	if !errors.As(err, &failure) || !failure.Only(certs.Restricted) {
		t.Errorf("%v", err)
	}
}
