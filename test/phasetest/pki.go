// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const PKIDir = "/etc/kubernetes/pki/"

// PutCA puts CAs into ca.crt, the first with its key.
func (s *Stage) PutCA(t *testing.T, list ...certs.Pair) {
	t.Helper()
	var data []byte
	for _, ca := range list {
		data = append(data, certs.EncodeCerts(ca.Cert)...)
	}
	key, err := certs.EncodeKey(list[0].Key)
	Fatal(t, err)
	s.Put(t, PKIDir+"ca.crt", string(data))
	s.Put(t, PKIDir+"ca.key", string(key))
}

const rootless = fixture.ClusterDocument + "featureGates: {RootlessControlPlane: true}\n"

func RootlessStage(t *testing.T) *Stage {
	t.Helper()
	s := NewStage(t, fixture.InitDocument+rootless)
	s.Put(t, accounts.PasswdFile, fixture.Passwd)
	s.Put(t, accounts.GroupFile, fixture.Group)
	return s
}
