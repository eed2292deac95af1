// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestEdited: a removed field is null, a removed document stays, an unknown field that nobody has touched isn't there.
func TestEdited(t *testing.T) {
	before := ofCluster + "aNewerField: {kept: true}\napiServer: {certSANs: [a, b], extraArgs: [{name: v, value: \"2\"}]}\n---\n" + ofKubelet + "maxPods: 17\n"
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"nothing":            {"", "", nil},
		"a comment":          {"maxPods", "# more\nmaxPods", nil},
		"a value":            {"maxPods: 17", "maxPods: 55", []string{"maxPods: 55", "kind: KubeletConfiguration", "apiVersion: kubelet.config.k8s.io/v1beta1"}},
		"a removed field":    {"maxPods: 17\n", "", []string{"maxPods: null"}},
		"a list":             {"[a, b]", "[a]", []string{"certSANs:\n  - a\n", "kind: ClusterConfiguration"}},
		"a removed document": {ofKubelet + "maxPods: 17\n", "", nil},
		"another document":   {"maxPods: 17\n", "maxPods: 17\n---\napiVersion: v1\nkind: Pod\n", []string{"kind: Pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Edited([]byte(before), []byte(strings.Replace(before, test.from, test.to, 1)))
			if err != nil || test.want == nil && len(got) > 0 {
				t.Errorf("%v\n%s", err, got)
			}
			fact.In(t, string(got), test.want...)
			fact.NotIn(t, string(got), "aNewerField", "extraArgs")
		})
	}
	if _, err := Edited([]byte(before), []byte("kind: A\nkind: B\n")); err == nil {
		t.Error("a field that is set twice is taken")
	}
}
