// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// kinds lists the kinds of a node's documents. YAML shows only these.
var kinds = []string{"Pod", "Config", "KubeletConfiguration"}

// YAML hides secrets in a stream of YAML or JSON documents, by field and form. It leaves out invalid documents and other kinds,
// whose secrets may be anywhere.
func YAML(data []byte, known ...string) []byte {
	return []byte(eachDocument(string(data), func(doc string) string {
		var fields map[string]any
		if strings.TrimSpace(doc) == "" {
			return ""
		}
		err := yaml.Unmarshal([]byte(doc), &fields)
		if kind, _ := fields["kind"].(string); err != nil || !slices.Contains(kinds, kind) {
			return leftOut
		}
		return Text(encode(hideFields(fields, true)), known...)
	}))
}

// Fields hides an object's values that no plan shows, in place: variables, also in embedded documents, headers, URLs' passwords.
func Fields(fields map[string]any) { hideFields(fields, false) }

// Document is Fields for a file. A file with nothing to hide stays the same, byte for byte.
func Document(text string) string {
	if !planned().MatchString(text) {
		return URLs(text)
	}
	return eachDocument(text, func(doc string) string {
		var value any
		if err := yaml.Unmarshal([]byte(doc), &value); err != nil {
			return leftOut
		}
		switch value.(type) {
		case map[string]any, []any:
			return URLs(encode(hideFields(value, false)))
		}
		return URLs(doc)
	})
}

// planned matches the fields that Document hides.
var planned = lazyregexp.New(`(?:^|[\s{,"'-])(?:env|extraEnvs|staticPodURLHeader|httpHeaders)["']?\s*:`)

const leftOut = "# " + mark + ": a document that can't be read, or of a kind that isn't shown\n"

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

func encode(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return "# left out: a document that can't be encoded as YAML\n"
	}
	return string(text)
}

// hideFields changes value and returns it: without the values a plan hides or, if all is set, without any secrets.
func hideFields(value any, all bool) any {
	switch v := value.(type) {
	case string:
		switch {
		case !all:
			return Document(v)
		case strings.ContainsAny(v, "\n{"): // a script, or another document
			return mark
		}
	case []any:
		for i, item := range v {
			v[i] = hideFields(item, all)
		}
	case map[string]any:
		for name, field := range v {
			v[name] = hideField(name, field, all)
		}
	}
	return value
}

var secretField = lazyregexp.New(`(?i)^(?:` + secretName + `|username)$`)

func hideField(name string, field any, all bool) any {
	text, isText := field.(string)
	switch {
	case name == "staticPodURLHeader" || name == "httpHeaders":
		return hidden(field, "name")
	case name == "env" || name == "extraEnvs":
		return hideVariables(field)
	case !all:
		return hideFields(field, false)
	case name == "user": // of a kubeconfig
		return hidden(field, "client-certificate", "client-certificate-data", "client-key", "tokenFile")
	case name == "command" || name == "args":
		return hideArguments(field)
	case isText && secretField().MatchString(name) && !harmless().MatchString(text):
		return mark
	}
	return hideFields(field, true)
}

// hidden hides values, also those in a list's objects, but not their names or the fields to keep.
func hidden(value any, keep ...string) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			if !slices.Contains(keep, name) {
				v[name] = mark
			}
		}
		return v
	case []any:
		for i, item := range v {
			v[i] = hidden(item, keep...)
		}
		return v
	}
	return mark
}

// hideVariables keeps the names of environment variables, and values known to be harmless.
func hideVariables(field any) any {
	list, isList := field.([]any)
	if !isList {
		return hidden(field)
	}
	for i, item := range list {
		entry, isObject := item.(map[string]any)
		switch {
		case !isObject:
			list[i] = mark
		case entry["value"] != nil:
			name, _ := entry["name"].(string)
			entry["value"] = variable(name, fmt.Sprint(entry["value"]))
		}
	}
	return list
}

func hideArguments(field any) any {
	list, isList := field.([]any)
	if !isList {
		return mark
	}
	arguments := make([]string, len(list))
	for i, item := range list {
		arguments[i] = fmt.Sprint(item)
	}
	return command(arguments, false)
}
