// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestKubeletOverrides: a setting that changes only in config.yaml is a warning, with the file or the flag that overrides it. One that
// doesn't change is nobody's business.
func TestKubeletOverrides(t *testing.T) {
	for name, test := range map[string]struct {
		flags, dropIn string
		by            string // empty for no warning
	}{
		"a drop-in":              {"--config-dir=/etc/kubelet.d", "maxPods: 110\n", "/etc/kubelet.d/50.conf"},
		"the same in a drop-in":  {"--config-dir=/etc/kubelet.d", "maxPods: 55\n", ""},
		"a drop-in nobody reads": {"--v=2", "maxPods: 110\n", ""},
		"another setting":        {"--config-dir=/etc/kubelet.d --pods-per-core=3", "podPidsLimit: 7\n", ""},
		"a flag":                 {"--max-pods=110", "", "--max-pods in /etc/default/kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS="+test.flags+"\n")
			s.Put(t, "/etc/kubelet.d/50.conf", test.dropIn)
			r := change(t, s)
			found := r.overridden(t.Context(), s.Env)
			if test.by == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Severity != fault.Warning {
				t.Fatalf("found %v", found)
			}
			fact.In(t, found[0].Message, "maxPods", settings)
			if !strings.Contains(found[0].Message, test.by) {
				t.Errorf("%q does not name %s", found[0].Message, test.by)
			}
			phasetest.Fatal(t, step.Run(t.Context(), s.Env, r.Phases(), step.Options{}))
			fact.In(t, s.Said.String(), overridesCheck)
		})
	}
}

func TestDiffering(t *testing.T) {
	for _, test := range []struct {
		before, after string
		want          []string
	}{
		{"{a: 1, b: 2}", "{a: 1, b: 3, c: 4}", []string{"b", "c"}},
		{"{a: {b: {c: 1, d: 2}}}", "{a: {b: {c: 1, d: 3}}}", []string{"a.b.d"}},
		{"{}", "{a: {b: {c: 1, d: 2}}}", []string{"a.b.c", "a.b.d"}},
		{"{a: {b.c: 1}}", "{}", []string{"a.b.c"}},
		{"{a: [1, 2]}", "{a: [1]}", []string{"a"}},
		{"{a: 1}", "{a: {b: 1}}", []string{"a"}},
	} {
		var before, after map[string]any
		phasetest.Fatal(t, yaml.Unmarshal([]byte(test.before), &before))
		phasetest.Fatal(t, yaml.Unmarshal([]byte(test.after), &after))
		var got []string
		for _, s := range differing(nil, before, after) {
			got = append(got, strings.Join(s.path, "."))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s and %s differ in %q, want %q", test.before, test.after, got, test.want)
		}
	}
}
