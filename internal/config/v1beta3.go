// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeadm.k8s.io/v1beta3 is read as v1beta4, with other fields and with arguments as a mapping:
// https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta3/

// fieldsOf returns a type's fields in the document's version of the API.
func (d *decoder) fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := structFields(t)
	if !d.v1beta3 {
		return fields
	}
	for _, since := range []string{
		"caCertificateValidityPeriod", "certificateValidityPeriod", "disabled", "dryRun", "encryptionAlgorithm", "extraEnvs",
		"httpEndpoints", "imagePullSerial", "proxy", "timeouts",
	} {
		delete(fields, since)
	}
	switch t {
	case reflect.TypeFor[APIServer]():
		fields["timeoutForControlPlane"] = reflect.TypeFor[metav1.Duration]()
	case reflect.TypeFor[Discovery]():
		fields["timeout"] = reflect.TypeFor[metav1.Duration]()
	}
	return fields
}

// argsOfMap reads v1beta3's arguments as a list, sorted by name, and records each one's line.
func (d *decoder) argsOfMap(n *yaml.Node, path string) (any, bool) {
	tree, ok := d.mapping(n, path, nil, reflect.TypeFor[string]())
	args, _ := tree.(map[string]any)
	var list []any
	for i, name := range keysOf(args) {
		d.lines[fmt.Sprintf("%s[%d]", path, i)] = d.lines[joinPath(path, printable(name))]
		list = append(list, map[string]any{"name": name, "value": args[name]})
	}
	return list, ok
}

// takeTimeouts finds the timeouts that v1beta4 has elsewhere.
func (d *documents) takeTimeouts(dec *decoder, kind string) {
	var old struct {
		APIServer struct{ TimeoutForControlPlane *metav1.Duration }
		Discovery struct{ Timeout *metav1.Duration }
	}
	data, err := json.Marshal(dec.known)
	if err != nil || json.Unmarshal(data, &old) != nil {
		return // faults have said so
	}
	switch {
	case kind == kindCluster:
		d.healthCheck = old.APIServer.TimeoutForControlPlane
	case kind == kindJoin && old.Discovery.Timeout != nil:
		d.join.Timeouts = &Timeouts{Discovery: old.Discovery.Timeout}
	}
}

// apiV1 has the fields of v1beta4, and each extra argument says how to merge it with the default of that name. It's experimental:
// only Migrate and Validate read it, and only if asked to.
const apiV1 = apiGroup + "/v1"

// mergeField is an argument's merge method: replace the default, or append or prepend to its value.
const mergeField = "mergeMethod"

// takeMergeMethods checks and removes merge methods, because v1beta4 has none. It warns about removals that change the result.
func (d *documents) takeMergeMethods(dec *decoder, node *yaml.Node, path string) {
	switch node.Kind {
	case yaml.SequenceNode:
		for i, item := range node.Content {
			d.takeMergeMethods(dec, item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			name, value := node.Content[i].Value, node.Content[i+1]
			if name == "extraArgs" || name == "kubeletExtraArgs" {
				d.takeMergeMethodsOf(dec, value, joinPath(path, name))
			} else {
				d.takeMergeMethods(dec, value, joinPath(path, name))
			}
		}
	}
}

func (d *documents) takeMergeMethodsOf(dec *decoder, args *yaml.Node, path string) {
	if args.Kind != yaml.SequenceNode {
		return // the decoder reports it
	}
	for i, arg := range args.Content {
		at := slices.IndexFunc(arg.Content, func(n *yaml.Node) bool { return n.Value == mergeField })
		if arg.Kind != yaml.MappingNode || at < 0 || at%2 != 0 {
			continue
		}
		field, method := fmt.Sprintf("%s[%d].%s", path, i, mergeField), arg.Content[at+1]
		arg.Content = slices.Delete(slices.Clone(arg.Content), at, at+2)
		place := Fault{File: dec.file, Line: dec.line(method), Field: field}
		switch known := []string{"append", "prepend", "replace"}; {
		case method.Kind != yaml.ScalarNode || !slices.Contains(known, method.Value):
			dec.faultf(method, field, "must be one of append, prepend and replace%s", didYouMean(method.Value, known))
		case method.Value != "replace":
			place.Message = fmt.Sprintf("%s has no merge methods, so the value replaces the default instead of being added to it", apiV1beta4)
			d.warn(place)
		}
	}
}
