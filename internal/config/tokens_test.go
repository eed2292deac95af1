// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
)

func TestLoadTokens(t *testing.T) {
	secrets := cmp.Comparer(func(a, b Secret) bool { return a == b })
	group := DefaultTokenGroups()
	for _, c := range []struct {
		name  string
		file  string
		flags Flags
		want  []Token
	}{
		{"made up", "", Flags{Given: []string{"ttl"}, TokenTTL: time.Hour},
			[]Token{{ID: "abcdef", TTL: time.Hour, Usages: DefaultTokenUsages(), Groups: group}}},
		{"for ever", "", Flags{Given: []string{"ttl", "description"}, Token: "abcdef.0123456789abcdef", Description: "x"},
			[]Token{{ID: "abcdef", Usages: DefaultTokenUsages(), Groups: group, Description: "x"}}},
		{"signing only", "", Flags{Given: []string{"usages", "ttl"}, Usages: []string{"signing"}},
			[]Token{{ID: "abcdef", Usages: []string{"signing"}}}},
		{"file", initHead + "bootstrapTokens:\n- {token: abcdef.0123456789abcdef, ttl: 2h, usages: [signing]}\n", Flags{},
			[]Token{{ID: "abcdef", TTL: 2 * time.Hour, Usages: []string{"signing"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.want {
				c.want[i].Secret = NewSecret("0123456789abcdef")
			}
			got, warnings, err := LoadTokens(asSource(c.file), c.flags, testOptions())
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			if diff := cmp.Diff(c.want, got, secrets); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

const initHead = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"

func asSource(text string) *Source {
	if text == "" {
		return nil
	}
	return &Source{Name: "f.yaml", Data: []byte(text)}
}

func TestLoadTokensFaults(t *testing.T) {
	for _, c := range []struct {
		file  string
		flags Flags
		want  string
	}{
		{"", Flags{Token: "SECRET"}, "bootstrap token: 6 | 16"},
		{"", Flags{Given: []string{"ttl"}, TokenTTL: -1}, "--ttl: | -1ns | negative"},
		{"", Flags{Given: []string{"usages"}, Usages: []string{"sign"}}, `--usages: | "sign"`},
		{"", Flags{Given: []string{"groups"}, Groups: []string{"system:masters"}}, "--groups: \"system:masters\" | system:bootstrappers:"},
		{"", Flags{Given: []string{"groups", "usages"}, Usages: []string{"signing"}, Groups: DefaultTokenGroups()}, "--groups: | usage authentication"},
		{"", Flags{Given: []string{"description"}, Description: "a\nb"}, "--description: | control character"},
		{initHead, Flags{}, "f.yaml: | InitConfiguration | bootstrapTokens"},
		{initHead + "bootstrapTokens: [{token: SECRET}]", Flags{}, "f.yaml:3: bootstrapTokens[0].token: | bootstrap token"},
		{initHead + "bootstrapTokens: [{}]", Flags{Given: []string{"ttl"}}, "--ttl: | --config"},
		{initHead + "bootstrapTokens: [{}]", Flags{Token: "SECRET"}, "token | --config"},
	} {
		_, _, err := LoadTokens(asSource(c.file), c.flags, testOptions())
		if strings.Contains(fmt.Sprint(err), "SECRET") {
			t.Errorf("%+v: %v, want %s", c.flags, err, c.want)
		}
		fact.Error(t, err, fact.Of(c.want)...)
	}
}

func TestTokenID(t *testing.T) {
	for _, text := range []string{"abcdef", "abcdef.0123456789abcdef"} {
		if id, err := TokenID(text); id != "abcdef" || err != nil {
			t.Error(text, id, err)
		}
	}
	for _, text := range []string{"", "ABCDEF", "abcdef.", "abcdef.SECRET", "abcdef0", "../../x"} {
		if _, err := TokenID(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Error(text, err)
		}
	}
}

func TestNewToken(t *testing.T) {
	id, secret := NewToken()
	if !IsToken(id + "." + secret) {
		t.Errorf("a new token of %d and %d characters has the wrong form", len(id), len(secret))
	}
	if _, other := NewToken(); other == secret {
		t.Error("two tokens have the same secret")
	}
	for _, text := range []string{"", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef\n"} {
		if IsToken(text) {
			t.Errorf("%q is taken for a token", text)
		}
	}
}
