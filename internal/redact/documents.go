// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// secretFields are fields of kubeconfigs and of the objects of clusters that
// hold a secret, in lower case without dashes. Fields that name a file do not
// count.
var secretFields = map[string]bool{
	"clientkeydata": true, "token": true, "password": true, "username": true, "tlsbootstraptoken": true,
	"certificatekey": true, "secret": true, "refreshtoken": true, "idtoken": true, "accesstoken": true, "idpclientsecret": true,
	"clientsecret": true, "bearertoken": true, "id-token": true,
}

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

// clean replaces the secrets below value.
func clean(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			clean(item)
		}
	case map[string]any:
		isSecret := v["kind"] == "Secret"
		for name, field := range v {
			switch {
			case isSecret && (name == "data" || name == "stringData"):
				v[name] = hidden(field)
			case secretField(name) && !isObject(field):
				v[name] = mark
			case holdsHeaders(name):
				v[name] = hidden(field)
			case holdsVariables(name):
				hideValues(field)
			default:
				hideArguments(name, field)
				clean(field)
			}
		}
		// An argument: {name: client-secret, value: x}.
		if name, _ := v["name"].(string); v["value"] != nil && secretFlag().MatchString("-"+name) {
			v["value"] = mark
		}
		// An annotation may hold the whole object again.
		if annotations, ok := v["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
}

func secretField(name string) bool {
	return secretFields[strings.ReplaceAll(strings.ToLower(name), "-", "")]
}

func isObject(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// holdsHeaders is for what the kubelet sends where it gets static Pods from a
// URL: mostly what it is let in with.
func holdsHeaders(field string) bool { return field == "staticPodURLHeader" }

func holdsVariables(field string) bool { return field == "env" || field == "extraEnvs" }

// hidden keeps the names of a Secret's keys, and of headers.
func hidden(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return mark
	}
	for name := range fields {
		fields[name] = mark
	}
	return fields
}

// hideValues keeps the names of environment variables, and the values that
// variable does.
func hideValues(value any) {
	list, ok := value.([]any)
	if !ok {
		return
	}
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok || fields["value"] == nil {
			continue
		}
		name, _ := fields["name"].(string)
		text, _ := fields["value"].(string)
		fields["value"] = variable(name, text)
	}
}

// hideArguments takes the secrets out of lists of arguments. Of a program that
// gets credentials, nobody knows which of its arguments are secret.
func hideArguments(field string, value any) {
	fields, _ := value.(map[string]any)
	switch field {
	case "args", "command":
		replace(value, arguments)
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
