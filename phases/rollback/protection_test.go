// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestProtectionInRollback: protection newer than the backup isn't dropped unasked. Other changes, and moved files, are no loss.
func TestProtectionInRollback(t *testing.T) {
	const server, encrypt = "/etc/kubernetes/manifests/kube-apiserver.yaml", "--encryption-provider-config=/etc/kubernetes/pki/enc.yaml"
	add := func(words string) func(t *testing.T, root string) {
		return func(t *testing.T, root string) {
			editFile(t, root+server, "    - kube-apiserver\n", "    - kube-apiserver\n    - "+words+"\n")
		}
	}
	for name, row := range map[string]struct {
		edit func(t *testing.T, root string)
		want []phasetest.FoundAs
	}{
		"nothing":    {func(*testing.T, string) {}, nil},
		"encryption": {add(encrypt), []phasetest.FoundAs{{Name: "error StaticPodProtection", Facts: []string{"kube-apiserver"}, List: encrypt}}},
		"profiling":  {add("--profiling=false"), nil},
		"moved": {func(t *testing.T, root string) {
			editFile(t, root+server, "--client-ca-file=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/etc/pki/ca.crt")
		}, nil},
		"damaged": {func(t *testing.T, root string) { replaceFile(t, root, server, "text:{") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			row.edit(t, s.Root)
			h := phasetest.NewLastingHost(s.Root)
			r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			phasetest.CheckFindings(t, r.protectionQuestion(&step.Env{Config: n, Host: h}).Run(t.Context(), h), row.want...)
		})
	}
}
