// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Extras holds, by kind, the parts of stored documents unknown to this version. It's written wherever the Node's documents are.
type Extras map[string]*extra

// extra is the part of a stored document unknown to this version: fields of newer, older or other tools, and retired feature
// gates. It's kept when the document is written again.
type extra struct {
	all   any // the document as JSON
	known any // the same without the unknown parts
}

// noteExtra records the unknown parts of a stored document, and warns about them once.
func (d *documents) noteExtra(kind string, dec *decoder, root *yaml.Node) {
	gates := retireGates(kind, dec.known)
	if len(dec.unknown)+len(gates) == 0 {
		return
	}
	all, err := jsonTree(root)
	if err != nil {
		// The error may quote a value, so it isn't shown.
		d.fault(Fault{File: dec.file, Line: root.Line, Message: "has fields that are unknown to this version and cannot be kept, because they are not valid YAML: " + listed(dec.unknown)})
		return
	}
	d.extras[kind] = &extra{all: all, known: dec.known}
	if len(dec.unknown) > 0 {
		d.warn(Fault{File: dec.file, Message: "keeping fields that are unknown to this version: " + listed(dec.unknown)})
	}
	if len(gates) > 0 {
		d.warn(Fault{File: dec.file, Message: "keeping retired or unknown feature gates: " + listed(gates)})
	}
}

// retireGates removes feature gates unknown to this version from a ClusterConfiguration's known part, and returns their names.
func retireGates(kind string, known any) []string {
	doc, _ := known.(map[string]any)
	gates, _ := doc["featureGates"].(map[string]any)
	if kind != kindCluster {
		return nil
	}
	var out []string
	for _, name := range keysOf(gates) {
		if name != gateRootless {
			delete(gates, name)
			out = append(out, printable(name))
		}
	}
	return out
}

func listed(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// jsonTree returns a node as encoding/json decodes it, with numbers in full precision.
func jsonTree(node *yaml.Node) (any, error) {
	text, err := yaml.Marshal(node)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	return treeOf(text)
}

func treeOf(doc []byte) (any, error) {
	text, err := sigsyaml.YAMLToJSON(doc)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree any
	return tree, errors.WithStack(dec.Decode(&tree))
}

// into adds the extra fields to doc; a nil x adds nothing.
func (x *extra) into(doc []byte) ([]byte, error) {
	if x == nil {
		return doc, nil
	}
	tree, err := treeOf(doc)
	if err != nil {
		return nil, err
	}
	fields, ok := tree.(map[string]any)
	if ok && fields["featureGates"] == nil {
		fields["featureGates"] = map[string]any{} // a place for the kept gates
	}
	withExtra(tree, x.all, x.known)
	if gates, empty := fields["featureGates"].(map[string]any); empty && len(gates) == 0 {
		delete(fields, "featureGates")
	}
	data, err := sigsyaml.Marshal(tree)
	return data, errors.WithStack(err)
}

// withExtra adds to doc the fields of all that known lacks. A field whose parent isn't in doc is dropped.
func withExtra(doc, all, known any) any {
	switch doc := doc.(type) {
	case map[string]any:
		fields, ok := all.(map[string]any)
		knownFields, alike := known.(map[string]any)
		if !ok || !alike {
			return doc
		}
		for name, value := range fields {
			part, isKnown := knownFields[name]
			have, there := doc[name]
			switch {
			case there:
				doc[name] = withExtra(have, value, part)
			case !isKnown:
				doc[name] = value
			}
		}
	case []any:
		items, ok := all.([]any)
		knownItems, alike := known.([]any)
		for i := range doc {
			if ok && alike && i < len(items) && i < len(knownItems) && sameItem(doc[i], knownItems[i]) {
				doc[i] = withExtra(doc[i], items[i], knownItems[i])
			}
		}
	}
	return doc
}

// sameItem reports whether an item of a list still has the known item's scalar fields.
func sameItem(item, known any) bool {
	fields, ok := item.(map[string]any)
	knownFields, alike := known.(map[string]any)
	if !ok || !alike {
		return false
	}
	for name, value := range knownFields {
		switch value.(type) {
		case nil, map[string]any, []any:
			continue
		}
		if fmt.Sprint(fields[name]) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}
