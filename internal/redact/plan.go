// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import "sigs.k8s.io/yaml"

// Fields takes out of an object what a plan must not show: the values of
// environment variables, also in documents that the object holds as text,
// headers, and the passwords of URLs. It changes fields.
func Fields(fields map[string]any) { hideInPlan(fields) }

// Document does to a file what Fields does to an object. A file with none of
// that stays as it is, byte by byte.
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
var planned = lazy(`(?:^|[\s{,"'-])(?:env|extraEnvs|staticPodURLHeader|httpHeaders)["']?\s*:`)

func hideInPlan(value any) any {
	switch v := value.(type) {
	case string:
		return Document(v)
	case []any:
		for i, item := range v {
			v[i] = hideInPlan(item)
		}
	case map[string]any:
		for name, field := range v {
			switch {
			case holdsHeaders(name):
				v[name] = hidden(field)
			case holdsVariables(name):
				hideValues(field)
			default:
				v[name] = hideInPlan(field)
			}
		}
	}
	return value
}
