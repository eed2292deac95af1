// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// YAML removes secrets from a stream of YAML or JSON documents by their structure, then
// by their form: credentials in kubeconfigs, the data of Secrets, tokens and keys in
// configurations, headers, values of environment variables, of secret flags and of exec
// plugins. A document that cannot be read is left out.
func YAML(data []byte, known ...string) []byte {
	return []byte(eachDocument(string(data), func(doc string) string { return document(doc, known) }))
}

func eachDocument(stream string, shown func(doc string) string) string {
	var out strings.Builder
	for i, doc := range strings.Split(stream, "\n---") {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(shown(doc))
	}
	return out.String()
}

const leftOut = "# left out: a document that is not valid YAML, so its secrets cannot be found\n"

func document(doc string, known []string) string {
	if strings.TrimSpace(doc) == "" {
		return ""
	}
	var value any
	if err := yaml.Unmarshal([]byte(doc), &value); err != nil {
		return leftOut
	}
	clean(value)
	return Text(encode(value), known...)
}

func encode(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return "# left out: a document that cannot be encoded as YAML\n"
	}
	return string(text)
}

// fieldRules say what to hide in a tree of fields, besides headers and the values of
// environment variables.
type fieldRules struct {
	text func(text string) string
	// field hides a field, and reports whether it has.
	field func(fields map[string]any, name string) bool
	// object hides what is known by several fields, once each of them is done.
	object func(fields map[string]any)
}

// hide changes value, and returns it.
func (r fieldRules) hide(value any) any {
	switch v := value.(type) {
	case string:
		return r.text(v)
	case []any:
		for i, item := range v {
			v[i] = r.hide(item)
		}
	case map[string]any:
		for name, field := range v {
			switch {
			case holdsHeaders(name):
				v[name] = hidden(field)
			case holdsVariables(name):
				hideValues(field)
			case !r.field(v, name):
				v[name] = r.hide(field)
			}
		}
		r.object(v)
	}
	return value
}

// clean replaces all secrets below value, and returns it.
func clean(value any) any {
	return fieldRules{text: cleanText, field: cleanField, object: cleanObject}.hide(value)
}

func cleanField(fields map[string]any, name string) bool {
	switch field := fields[name]; {
	case fields["kind"] == "Secret" && (name == "data" || name == "stringData"):
		fields[name] = hidden(field)
	case secretField().MatchString(name):
		fields[name] = hideSecret(field)
	default:
		hideArguments(name, field)
		return false
	}
	return true
}

func cleanObject(fields map[string]any) {
	hideNamed(fields)
	// An annotation may hold the whole object again.
	if annotations, ok := fields["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
}

// hideNamed is for arguments, {name: client-secret, value: x}, and for variables in
// lists of unknown fields.
func hideNamed(fields map[string]any) {
	name, _ := fields["name"].(string)
	text, _ := fields["value"].(string)
	switch {
	case fields["value"] == nil:
	case secretFlag().MatchString("-" + name):
		fields["value"] = hideSecret(fields["value"])
	case capitals().MatchString(name):
		fields["value"] = variable(name, text)
	}
}

// capitals matches the names of most environment variables, and of nothing else.
var capitals = lazyregexp.New(`^[A-Z_][A-Z0-9_]+$`)

// cleanText cleans a document that is a text in another document.
func cleanText(text string) string {
	if !strings.ContainsAny(text, "\n{") {
		return text
	}
	return eachDocument(text, func(doc string) string {
		var value any
		if err := yaml.Unmarshal([]byte(doc), &value); err != nil || !isObject(value) {
			return doc
		}
		return encode(clean(value))
	})
}

// hideSecret hides the value of a field with a secret name: a text, or the texts of a
// list. An object is cleaned, as its fields have names of their own.
func hideSecret(field any) any {
	switch v := field.(type) {
	case map[string]any:
		return clean(v)
	case []any:
		for i, item := range v {
			v[i] = hideSecret(item)
		}
		return v
	case string:
		if !harmless().MatchString(v) {
			return mark
		}
	case float64:
		return hideSecret(fmt.Sprint(v))
	}
	return field
}

func isObject(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// holdsHeaders matches headers that the kubelet sends when it gets static Pods from a URL
// or probes one. They mostly hold credentials.
func holdsHeaders(field string) bool { return field == "staticPodURLHeader" || field == "httpHeaders" }

func holdsVariables(field string) bool { return field == "env" || field == "extraEnvs" }

// hidden hides values, and keeps their names, as of a Secret's keys and of headers.
func hidden(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = mark
		}
		return v
	case []any:
		for _, item := range v {
			if named, ok := item.(map[string]any); ok && named["value"] != nil {
				named["value"] = mark
			}
		}
		return v
	}
	return mark
}

// hideValues keeps the names of environment variables, and those values that variable
// keeps.
func hideValues(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = variable(name, fmt.Sprint(field))
		}
	case []any:
		for i, item := range v {
			switch entry := item.(type) {
			case string: // A=b
				v[i] = assignments(entry)
			case map[string]any:
				if entry["value"] != nil {
					name, _ := entry["name"].(string)
					entry["value"] = variable(name, fmt.Sprint(entry["value"]))
				}
			}
		}
	}
}

// hideArguments removes secrets from lists of arguments. All arguments of a program that
// gets credentials are hidden, as any of them may be secret.
func hideArguments(field string, value any) {
	fields, _ := value.(map[string]any)
	switch field {
	case "args", "command":
		replace(value, command)
	case "exec":
		replace(fields["args"], flags)
	case "auth-provider":
		hidden(fields["config"])
	}
}

func replace(list any, shown func([]string) []string) {
	items, ok := list.([]any)
	if !ok {
		return
	}
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	for i, word := range shown(words) {
		items[i] = word
	}
}
