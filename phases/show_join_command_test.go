// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestResultOfInit: the result has everything that a join needs, except what the user wants withheld.
func TestResultOfInit(t *testing.T) {
	const token, key = "abcdef.0123456789abcdef", "abababababababababababababababababababababababababababababababab"
	tests := []struct {
		name                           string
		upload, alone                  bool
		hideToken, hideKey             bool
		token, key, join, controlPlane bool
	}{
		{name: "workers", token: true, join: true},
		{name: "control planes, too", upload: true, token: true, key: true, join: true, controlPlane: true},
		{name: "control planes, which have no common address", upload: true, alone: true, token: true, key: true, join: true},
		{name: "no token", upload: true, hideToken: true, key: true},
		{name: "no key", upload: true, hideKey: true, token: true, join: true},
		{name: "neither", upload: true, hideToken: true, hideKey: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+"bootstrapTokens: [{token: "+token+"}]\ncertificateKey: "+key+"\n"+fixture.ClusterDocument)
			var out bytes.Buffer
			events := ui.NewEvents("slipway", "v1", "init", &out)
			s.UI, s.Config.UploadCerts = events, tt.upload
			if !tt.alone {
				s.Config.Cluster.ControlPlaneEndpoint = "192.0.2.11:6443"
			}
			s.Config.SkipTokenPrint, s.Config.SkipCertificateKeyPrint = tt.hideToken, tt.hideKey
			s.play(t, certificates(), uploadCerts(), bootstrapToken(), showJoinCommand("join"))
			before := out.Len()
			events.End(ui.Summary{Node: "cp-1"}, nil)
			checkEvents(t, out.Bytes())
			if strings.Contains(out.String()[:before], key) {
				t.Error("an event other than the result has the key")
			}
			pin := certs.PublicKeyPin(certOf(t, s))
			join := "slipway join 192.0.2.11:6443 --token " + token + " --discovery-token-ca-cert-hash " + pin
			type m = map[string]any
			want := m{"caCertHashes": []any{pin}, "token": given(tt.token, token), "certificateKey": given(tt.key, key), "joinCommand": given(tt.join, join),
				"controlPlaneJoinCommand": given(tt.controlPlane, join+" --control-plane --certificate-key "+key)}
			var got m
			if err := json.Unmarshal(out.Bytes()[before:], &got); err != nil {
				t.Fatal(err)
			}
			for name := range got {
				if _, wanted := want[name]; !wanted {
					delete(got, name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// given returns a text, or null.
func given(shown bool, text string) any {
	if shown {
		return text
	}
	return nil
}

// certOf returns the cluster's CA.
func certOf(t *testing.T, s *stage) *x509.Certificate {
	t.Helper()
	cert, err := certs.FirstCert([]byte(s.get(t, "/etc/kubernetes/pki/ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
