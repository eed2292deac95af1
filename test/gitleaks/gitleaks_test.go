// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitleaks checks the program's redaction with the rules of gitleaks, which others wrote and which know many issuers'
// tokens. It's a separate module, because the program doesn't need them.
package gitleaks

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/lucasjones/reggen"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/slipway-k8s/slipway/internal/redact"
)

// otherwise lists rules for which generated samples prove nothing.
var otherwise = []string{
	"jwt", "jwt-base64", // begin like JSON, and samples go on with anything
	"private-key",              // ends with anything
	"curl-auth-user",           // is whole scripts
	"sourcegraph-access-token", // is also any commit
	"kubernetes-secret-yaml",   // is known by its structure
	"generic-api-key",          // is whatever stands behind a name
}

// TestTokensAreHidden generates tokens of every form that gitleaks knows, and checks that none is shown. gitleaks recognizes more
// tokens by a vendor's name nearby; without it, such a token looks like anything else.
func TestTokensAreHidden(t *testing.T) {
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for id, rule := range d.Config.Rules {
		if rule.Regex == nil || slices.Contains(otherwise, id) || strings.Contains(rule.Regex.String(), "{0,50}?") {
			continue
		}
		samples, err := reggen.NewGenerator(strings.NewReplacer("(?i)", "", "(?i:", "(?:").Replace(rule.Regex.String()))
		if err != nil {
			t.Fatal(err)
		}
		samples.SetSeed(7)
		found := false
		for range 50 {
			text := strings.TrimFunc(samples.Generate(40), unicode.IsSpace) + "\n"
			for _, f := range d.DetectString(text) {
				if f.RuleID != id {
					continue
				}
				found = true
				if shown := redact.Text(text); strings.Contains(shown, f.Secret) {
					t.Errorf("%s: %q is shown as %q", id, text, shown)
				}
			}
		}
		if found {
			compared++
		}
	}
	if compared < 80 {
		t.Errorf("only %d forms were compared", compared)
	}
}
