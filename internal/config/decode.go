// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decoder matches the nodes of one document with a Go type by the type's json
// tags, strictly. It goes on after a fault, so that one run finds them all,
// and remembers the line of every field.
type decoder struct {
	file  string
	out   *findings
	lines map[string]int  // of every field that the document names
	bad   map[string]bool // fields that could not be read

	// lenient passes over fields that the type does not have.
	lenient bool
	unknown []string // the paths of these fields
	known   any      // the document without them

	alias *yaml.Node // the outermost alias on the way to the current node
}

// decode reads node into the value that into points at. Fields with a fault
// keep their zero value.
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
		// The error may quote a value, so it is not shown.
		d.faultf(node, "", "cannot be read as %s", reflect.TypeOf(into).Elem().Name())
	}
}

func (d *decoder) faultf(n *yaml.Node, path, format string, args ...any) {
	d.bad[path] = true
	d.out.fault(Fault{File: d.file, Line: d.line(n), Field: path, Message: fmt.Sprintf(format, args...)})
}

// value checks n against t and returns what encoding/json can read into t; ok
// is false where there is nothing to keep.
func (d *decoder) value(n *yaml.Node, t reflect.Type, path string) (v any, ok bool) {
	if n.Kind == yaml.AliasNode {
		return d.through(n, t, path)
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
		return d.mapping(n, path, structFields(t), nil)
	case reflect.Map:
		return d.mapping(n, path, nil, t.Elem())
	case reflect.Slice:
		return d.sequence(n, t.Elem(), path)
	case reflect.Interface:
		return d.any(n, path)
	default:
		return d.scalar(n, t, path)
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// through reads what an alias stands for. Its fields count as written where
// the alias is.
func (d *decoder) through(n *yaml.Node, t reflect.Type, path string) (any, bool) {
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

// scalar reads text, numbers and booleans.
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
			if x, err := strconv.ParseFloat(n.Value, t.Bits()); err == nil && x-x == 0 { // neither Inf nor NaN: JSON has no such
				return x, true
			}
		}
	}
	d.faultf(n, path, "must be %s, is %s", typeName(t), describe(n))
	return nil, false
}

// custom reads a type that has its own idea of JSON, such as a duration.
func (d *decoder) custom(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	v, ok := d.any(n, path)
	if !ok {
		return nil, false
	}
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err != nil { // it may quote the value, so it is not shown
		d.faultf(n, path, "must be %s, is %s", typeName(t), describe(n))
		return nil, false
	}
	return v, true
}

// any reads a node without knowing a type for it.
func (d *decoder) any(n *yaml.Node, path string) (any, bool) {
	anyType := reflect.TypeFor[any]()
	switch n.Kind {
	case yaml.AliasNode:
		return d.through(n, anyType, path)
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

// yamlBool reads a boolean of YAML 1.1, as Kubernetes does: yes, no, on and
// off are booleans too.
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

// structFields maps the json names of t's fields to their types, those of
// inlined structs among them.
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

// typeName says in words what a value of t looks like.
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

// describe says what kind of thing n is, never its value, which may be secret.
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

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
