// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// YAML takes the secrets out of a stream of YAML or JSON documents by their
// structure, then by their form: credentials of kubeconfigs, the data of
// Secrets, tokens and keys of configurations, headers, values of environment
// variables, of secret flags and of exec plugins. A document that cannot be
// read is left out.
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

const leftOut = "# a document that is no YAML was left out, as nothing tells where its secrets are\n"

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
		return "# a document was left out: it cannot be written again\n"
	}
	return string(text)
}

// clean replaces the secrets below value, and returns it.
func clean(value any) any {
	switch v := value.(type) {
	case string:
		return cleanText(v)
	case []any:
		for i, item := range v {
			v[i] = clean(item)
		}
	case map[string]any:
		isSecret := v["kind"] == "Secret"
		for name, field := range v {
			switch {
			case isSecret && (name == "data" || name == "stringData"):
				v[name] = hidden(field)
			case holdsHeaders(name):
				v[name] = hidden(field)
			case holdsVariables(name):
				hideValues(field)
			case secretField().MatchString(name):
				v[name] = hideSecret(field)
			default:
				hideArguments(name, field)
				v[name] = clean(field)
			}
		}
		hideNamed(v)
		// An annotation may hold the whole object again.
		if annotations, ok := v["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	return value
}

// hideNamed is for arguments, {name: client-secret, value: x}, and for variables
// that stand in a list which nobody knows.
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

// capitals is how most environment variables are called, and nothing else is.
var capitals = lazy(`^[A-Z_][A-Z0-9_]+$`)

// cleanText does so with a document that stands in another one as text.
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

// hideSecret hides what a field holds whose name says that it is secret. Below
// it, only the texts of a list are: an object has names of its own.
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

// holdsHeaders is for what the kubelet sends with its requests, when it gets
// static Pods from a URL or probes one: mostly what it is let in with.
func holdsHeaders(field string) bool { return field == "staticPodURLHeader" || field == "httpHeaders" }

func holdsVariables(field string) bool { return field == "env" || field == "extraEnvs" }

// hidden keeps the names of a Secret's keys, of headers, and of what else has
// values under names.
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

// hideValues keeps the names of environment variables, and the values that
// variable does.
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

// hideArguments takes the secrets out of lists of arguments. Of a program that
// gets credentials, nobody knows which of its arguments are secret.
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
