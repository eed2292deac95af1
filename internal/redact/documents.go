// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
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
// Secrets, tokens and keys of configurations, values of environment variables
// and of exec plugins. A document that cannot be read is left out.
func YAML(data []byte, known ...string) []byte {
	var out bytes.Buffer
	for i, doc := range bytes.Split(data, []byte("\n---")) {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(document(doc, known))
	}
	return out.Bytes()
}

func document(doc []byte, known []string) string {
	if len(bytes.TrimSpace(doc)) == 0 {
		return ""
	}
	var value any
	if err := yaml.Unmarshal(doc, &value); err != nil {
		return "# a document that is no YAML was left out, as nothing tells where its secrets are\n"
	}
	clean(value)
	text, err := yaml.Marshal(value)
	if err != nil {
		return "# a document was left out: it cannot be written again\n"
	}
	return Text(string(text), known...)
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
			case name == "env" || name == "extraEnvs":
				hideValues(field)
			default:
				clean(field)
			}
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

// hidden keeps the names of a Secret's keys.
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

// hideValues keeps the names of environment variables; the value of those that
// name a proxy is worth seeing, and Text takes its password out.
func hideValues(value any) {
	list, ok := value.([]any)
	if !ok {
		return
	}
	for _, item := range list {
		variable, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _ := variable["name"].(string)
		if _, set := variable["value"]; set && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			variable["value"] = mark
		}
	}
}

// Environment takes the values out of the Environment= lines of a unit file or
// of an environment file, but for those of flags, proxies and paths.
func Environment(text string, known ...string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(environmentLine(line))
	}
	return Text(out.String(), known...)
}

func environmentLine(line string) string {
	rest, isUnit := strings.CutPrefix(strings.TrimSpace(line), "Environment=")
	name, _, set := strings.Cut(strings.Trim(rest, `"'`), "=")
	if !isUnit || !set {
		return line
	}
	shown := strings.HasSuffix(strings.ToLower(name), "_proxy") || strings.HasSuffix(name, "_ARGS") || strings.HasSuffix(name, "PATH")
	if shown {
		return line
	}
	return "Environment=" + name + "=" + mark + "\n"
}
