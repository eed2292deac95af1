// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestJoinKeepsCAs: a CA file with more CAs than discovery verified, as during the replacement of a CA, stays as it is.
func TestJoinKeepsCAs(t *testing.T) {
	const path = "/etc/kubernetes/pki/ca.crt"
	later := time.Now().Add(time.Hour)
	oldCA, newCA := fixture.Signed(t, fixture.Pair{}, "kubernetes", later), fixture.Signed(t, fixture.Pair{}, "kubernetes", later)
	both := string(certs.EncodeCerts(newCA.Cert, oldCA.Cert))
	tests := []struct {
		name        string
		found, have []fixture.Pair
		want        string
	}{
		{"no file", []fixture.Pair{oldCA}, nil, string(certs.EncodeCerts(oldCA.Cert))},
		{"a file with one more", []fixture.Pair{oldCA}, []fixture.Pair{newCA, oldCA}, both},
		{"in another order", []fixture.Pair{oldCA, newCA}, []fixture.Pair{newCA, oldCA}, both},
		{"a file with one less", []fixture.Pair{newCA, oldCA}, []fixture.Pair{oldCA}, both},
		{"a file of another", []fixture.Pair{oldCA}, []fixture.Pair{newCA}, string(certs.EncodeCerts(oldCA.Cert))},
	}
	encode := func(list []fixture.Pair) (data []byte) {
		for _, p := range list {
			data = append(data, certs.EncodeCerts(p.Cert)...)
		}
		return data
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			if err := s.Discover(t); err != nil {
				t.Fatal(err)
			}
			s.Config.Join.CA = encode(tt.found)
			if len(tt.have) > 0 {
				s.Put(t, path, string(encode(tt.have)))
			}
			for range 2 {
				s.Play(t, StartJoin())
				if got := s.Get(t, path); got != tt.want {
					t.Errorf("ca.crt is\n%s\nwant\n%s", got, tt.want)
				}
			}
		})
	}
}
