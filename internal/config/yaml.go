// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// MaxSize is the maximum size of a configuration, in bytes.
const MaxSize = 1 << 20

// Limits on untrusted input. A real file has a few kilobytes, eight levels, and no aliases.
const (
	maxDepth     = 64
	maxAliases   = 64
	maxExpansion = 20_000 // nodes reached through aliases
	maxDocuments = 64
)

// document is one of a source's YAML documents, not yet decoded into a type.
type document struct {
	root *yaml.Node
	line int
}

var yamlErrorLine = lazyregexp.New(`^yaml: (?:line (\d+): )?(.*)$`)

// parse splits src into its non-empty documents, at most limit. A syntax error is a fault and ends it; earlier documents stay.
func parse(src *Source, limit int, f *findings) []document {
	if len(src.Data) > MaxSize {
		f.fault(Fault{File: src.Name, Message: "is larger than the limit of 1 MiB"})
		return nil
	}
	var docs []document
	dec := yaml.NewDecoder(bytes.NewReader(src.Data))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			f.fault(syntaxFault(src.Name, err))
			return docs
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue
		}
		if len(docs) == limit {
			f.fault(Fault{File: src.Name, Line: node.Line, Message: fmt.Sprintf("contains more than %d documents", limit)})
			return docs
		}
		root := node.Content[0]
		if excess := (&expansion{}).excess(root, 0); excess != "" {
			f.fault(Fault{File: src.Name, Line: root.Line, Message: excess})
			continue
		}
		docs = append(docs, document{root: root, line: root.Line})
	}
}

// expansion measures a document, to refuse deep nesting and multiplication through aliases.
type expansion struct {
	aliases  int
	nodes    int // reached through aliases
	followed int // aliases on the way to the current node
}

// excess walks n and describes the limit it exceeds; it's empty if there's none.
func (e *expansion) excess(n *yaml.Node, depth int) string {
	if e.followed > 0 {
		e.nodes++
	}
	switch {
	case depth > maxDepth:
		return fmt.Sprintf("is nested more than %d levels deep", maxDepth)
	case e.aliases > maxAliases || e.nodes > maxExpansion:
		return "becomes too large when YAML aliases are expanded; write the values out"
	case n.Kind == yaml.AliasNode:
		e.aliases++
		e.followed++
		defer func() { e.followed-- }()
		return e.excess(n.Alias, depth+1)
	}
	for _, child := range n.Content {
		if excess := e.excess(child, depth+1); excess != "" {
			return excess
		}
	}
	return ""
}

// syntaxFault converts a YAML parser's error to a fault. The parser quotes no values except anchors' names, which are left out.
func syntaxFault(file string, err error) Fault {
	fault := Fault{File: file, Message: "is not valid YAML"}
	m := yamlErrorLine().FindStringSubmatch(err.Error())
	if m == nil {
		return fault
	}
	fault.Line, _ = strconv.Atoi(m[1])
	switch {
	case strings.HasPrefix(m[2], "unknown anchor"):
		fault.Message += ": an alias names an anchor that does not exist"
	default:
		fault.Message += ": " + m[2]
	}
	return fault
}

func (d *decoder) scalar(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		d.faultf(n, path, "must be %s, is %s", typeName(t), describe(n))
		return nil, false
	}
	switch t.Kind() {
	case reflect.String:
		switch n.Tag {
		case "!!str", "!!timestamp":
			return n.Value, true
		case "!!int", "!!float", "!!bool":
			d.faultf(n, path, "must be a string, is %s; put the value in quotes", describe(n))
			return nil, false
		}
	case reflect.Bool:
		if b, ok := yamlBool(n); ok {
			return b, true
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n.Tag == "!!int" {
			if i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, t.Bits()); err == nil {
				return i, true
			}
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n.Tag == "!!int" {
			if i, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, t.Bits()); err == nil {
				return i, true
			}
		}
	case reflect.Float32, reflect.Float64:
		if n.Tag == "!!int" || n.Tag == "!!float" {
			if x, err := strconv.ParseFloat(n.Value, t.Bits()); err == nil && x-x == 0 { // neither Inf nor NaN: JSON has neither
				return x, true
			}
		}
	}
	d.faultf(n, path, "must be %s, is %s", typeName(t), describe(n))
	return nil, false
}

// custom reads a type with its own JSON decoding, such as a duration.
func (d *decoder) custom(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	v, ok := d.any(n, path)
	if !ok {
		return nil, false
	}
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err != nil { // it may quote the value, so it isn't shown
		d.faultf(n, path, "must be %s, is %s", typeName(t), describe(n))
		return nil, false
	}
	return v, true
}

// yamlBool reads a YAML 1.1 boolean, as Kubernetes does: yes, no, on and off count, too.
func yamlBool(n *yaml.Node) (value, ok bool) {
	if n.Tag != "!!bool" && (n.Tag != "!!str" || n.Style != 0) {
		return false, false
	}
	switch strings.ToLower(n.Value) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "a duration such as 4m or 8760h"
	case reflect.TypeFor[metav1.Time]():
		return "a time such as 2030-01-31T12:00:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a non-negative integer (%d bits)", t.Bits())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer (%d bits)", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a valid " + t.Name()
	}
}

// describe names the kind of value n is, but never the value, which may be secret.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.Tag {
	case "!!str":
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			return "a quoted string"
		}
		return "an unquoted string"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!null":
		return "empty"
	}
	return "something else"
}

// hiddenMark replaces secrets in output: see internal/redact.
const hiddenMark = "[redacted]"

// hidden finds a hidden secret, and returns its path. Without quotes, YAML reads the mark as a list.
func hidden(n *yaml.Node, path string) (string, bool) {
	if strings.Contains(n.Value, hiddenMark) {
		return path, true
	}
	if n.Kind == yaml.SequenceNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 1 && "["+n.Content[0].Value+"]" == hiddenMark {
		return path, true
	}
	for i, child := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			at = strings.TrimPrefix(path+"."+n.Content[i-i%2].Value, ".")
		}
		if found, ok := hidden(child, at); ok {
			return found, true
		}
	}
	return "", false
}
