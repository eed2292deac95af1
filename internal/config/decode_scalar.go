// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
