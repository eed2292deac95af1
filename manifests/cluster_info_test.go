// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
)

// The signature of "kubeconfig" with abcdef.0123456789abcdef, according to RFC 7515: the header {"alg":"HS256","kid":"abcdef"},
// nothing, and the HMAC-SHA256 of header and content, which `openssl dgst -sha256 -hmac` confirms.
const signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..1aSmWQ8qI2kvFNOp1y4ORVTgvutw0Y5Y93MxMR3Qf2o"

func TestSignClusterInfo(t *testing.T) {
	token := func(id string, usages ...string) config.Token {
		return config.Token{ID: id, Secret: config.NewSecret("0123456789abcdef"), Usages: usages}
	}
	tokens := []config.Token{token("abcdef", config.DefaultTokenUsages()...), token("ghijkl", "authentication")}
	for name, tt := range map[string]struct {
		before  map[string]string
		changed bool
		after   map[string]string
	}{
		"new": {
			map[string]string{"kubeconfig": "kubeconfig"}, true,
			map[string]string{"kubeconfig": "kubeconfig", "jws-kubeconfig-abcdef": signature},
		},
		"signed already": {
			map[string]string{"kubeconfig": "kubeconfig", "jws-kubeconfig-abcdef": signature}, false,
			map[string]string{"kubeconfig": "kubeconfig", "jws-kubeconfig-abcdef": signature},
		},
		"a wrong signature, and one of another token": {
			map[string]string{"kubeconfig": "kubeconfig", "jws-kubeconfig-abcdef": "wrong", "jws-kubeconfig-zzzzzz": "theirs"}, true,
			map[string]string{"kubeconfig": "kubeconfig", "jws-kubeconfig-abcdef": signature, "jws-kubeconfig-zzzzzz": "theirs"},
		},
		"nothing to sign": {map[string]string{"other": "x"}, false, map[string]string{"other": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			cm := ClusterInfo(nil)
			cm.Data = tt.before
			changed, err := SignClusterInfo(cm, tokens)
			if err != nil || changed != tt.changed {
				t.Errorf("changed %v, error %v", changed, err)
			}
			if diff := cmp.Diff(tt.after, cm.Data); diff != "" {
				t.Error(diff)
			}
		})
	}
}
