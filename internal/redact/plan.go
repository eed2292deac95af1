// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// Fields removes from an object what a plan must not show: the values of environment
// variables, also in documents that the object contains as text, headers, and the
// passwords of URLs. It changes fields.
func Fields(fields map[string]any) { hideInPlan(fields) }

// Document is Fields for a file. A file without anything to hide stays the same, byte by
// byte.
func Document(text string) string {
	if !planned().MatchString(text) {
		return URLs(text)
	}
	return eachDocument(text, func(doc string) string {
		var value any
		if err := yaml.Unmarshal([]byte(doc), &value); err != nil {
			return leftOut
		}
		if !isObject(value) {
			return URLs(doc)
		}
		return URLs(encode(hideInPlan(value)))
	})
}

// planned finds the fields that hideInPlan looks for.
var planned = lazyregexp.New(`(?:^|[\s{,"'-])(?:env|extraEnvs|staticPodURLHeader|httpHeaders)["']?\s*:`)

func hideInPlan(value any) any {
	return fieldRules{
		text:   Document,
		field:  func(map[string]any, string) bool { return false },
		object: func(map[string]any) {},
	}.hide(value)
}
