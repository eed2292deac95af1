// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder decodes one document's nodes into a Go type by its json tags, strictly. It continues after a fault, so that one run
// finds them all, and records the line of every field.
type decoder struct {
	file  string
	out   *findings
	lines map[string]int  // of every field in the document
	bad   map[string]bool // fields that could not be read

	// lenient skips fields the type doesn't have.
	lenient bool
	unknown []string // the paths of the skipped fields
	known   any      // the document without them

	v1beta3 bool // the document's version; see v1beta3.go

	alias *yaml.Node // the outermost alias on the way to the current node
}

// decode reads node into *into. Faulty fields keep their zero value.
func (d *decoder) decode(node *yaml.Node, into any) {
	tree, ok := d.value(node, reflect.TypeOf(into).Elem(), "")
	if !ok {
		return
	}
	d.known = tree
	data, err := json.Marshal(tree)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		// The error may quote a value, so it isn't shown.
		d.faultf(node, "", "cannot be read as %s", reflect.TypeOf(into).Elem().Name())
	}
}

func (d *decoder) faultf(n *yaml.Node, path, format string, args ...any) {
	d.bad[path] = true
	d.out.fault(Fault{File: d.file, Line: d.line(n), Field: path, Message: fmt.Sprintf(format, args...)})
}

// value checks n against t and returns a tree encoding/json can decode into t; ok is false if there's nothing to keep.
func (d *decoder) value(n *yaml.Node, t reflect.Type, path string) (v any, ok bool) {
	if n.Kind == yaml.AliasNode {
		return d.resolveAlias(n, t, path)
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, true
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return d.custom(n, t, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.mapping(n, path, d.fieldsOf(t), nil)
	case reflect.Map:
		return d.mapping(n, path, nil, t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // bytes, in base64
			return d.scalar(n, reflect.TypeFor[string](), path)
		}
		if d.v1beta3 && t == reflect.TypeFor[[]Arg]() {
			return d.argsOfMap(n, path)
		}
		return d.sequence(n, t.Elem(), path)
	case reflect.Interface:
		return d.any(n, path)
	default:
		return d.scalar(n, t, path)
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// resolveAlias reads an alias's target, and locates its fields at the alias.
func (d *decoder) resolveAlias(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	if d.alias == nil {
		d.alias = n
		defer func() { d.alias = nil }()
	}
	return d.value(n.Alias, t, path)
}

func (d *decoder) line(n *yaml.Node) int {
	if d.alias != nil {
		return d.alias.Line
	}
	return n.Line
}

// mapping reads a struct (fields is set) or a map (elem is set).
func (d *decoder) mapping(n *yaml.Node, path string, fields map[string]reflect.Type, elem reflect.Type) (any, bool) {
	if n.Kind != yaml.MappingNode {
		d.faultf(n, path, "must be a mapping, is %s", describe(n))
		return nil, false
	}
	out := make(map[string]any, len(n.Content)/2)
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.out.full(); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.faultf(key, path, "has a key that is not a plain name; aliases and merges (<<) are not supported as keys")
			continue
		}
		name, child := key.Value, joinPath(path, printable(key.Value))
		if line, dup := seen[name]; dup {
			d.faultf(key, child, "is set twice, first on line %d", line)
			continue
		}
		seen[name] = d.line(key)
		d.lines[child] = d.line(key)
		t := elem
		if fields != nil {
			var known bool
			if t, known = fields[name]; !known && d.lenient {
				d.unknown = append(d.unknown, child)
				continue
			}
			if !known {
				d.faultf(key, child, "unknown field%s", didYouMean(name, keysOf(fields)))
				continue
			}
		}
		if v, ok := d.value(val, t, child); ok {
			out[name] = v
		}
	}
	return out, true
}

func (d *decoder) sequence(n *yaml.Node, elem reflect.Type, path string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		d.faultf(n, path, "must be a list, is %s", describe(n))
		return nil, false
	}
	out := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		child := fmt.Sprintf("%s[%d]", path, i)
		d.lines[child] = d.line(item)
		v, _ := d.value(item, elem, child)
		if d.out.full() {
			break
		}
		out = append(out, v) // a faulty item keeps its place, so that indexes stay right
	}
	return out, true
}

func (d *decoder) any(n *yaml.Node, path string) (any, bool) {
	anyType := reflect.TypeFor[any]()
	switch n.Kind {
	case yaml.AliasNode:
		return d.resolveAlias(n, anyType, path)
	case yaml.MappingNode:
		return d.mapping(n, path, nil, anyType)
	case yaml.SequenceNode:
		return d.sequence(n, anyType, path)
	}
	switch n.Tag {
	case "!!null":
		return nil, true
	case "!!bool":
		return d.scalar(n, reflect.TypeFor[bool](), path)
	case "!!int":
		return d.scalar(n, reflect.TypeFor[int64](), path)
	case "!!float":
		return d.scalar(n, reflect.TypeFor[float64](), path)
	}
	return d.scalar(n, reflect.TypeFor[string](), path)
}

// structFields maps the json names of t's fields to their types, including fields of inlined structs.
func structFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			maps.Copy(fields, structFields(f.Type))
		case name == "-" || !f.IsExported():
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
