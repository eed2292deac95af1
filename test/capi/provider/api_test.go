// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// definitions reads the CRDs strictly, by kind.
func definitions(t *testing.T) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]apiextensionsv1.CustomResourceDefinition{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(CRDs)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(document, &crd); err != nil {
			t.Fatal(err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
}

// TestContract: Cluster API finds the kinds by name, and the version by the contract's label.
func TestContract(t *testing.T) {
	all := definitions(t)
	for _, kind := range []string{"LabCluster", "LabMachine", "LabMachineTemplate"} {
		crd, known := all[kind]
		if !known {
			t.Errorf("there's no %s", kind)
			continue
		}
		if want := strings.ToLower(kind) + "s." + GroupVersion.Group; crd.Name != want {
			t.Errorf("%s is defined by %s, want %s", kind, crd.Name, want)
		}
		if got := crd.Labels["cluster.x-k8s.io/v1beta2"]; got != GroupVersion.Version || crd.Spec.Versions[0].Name != got {
			t.Errorf("%s has the version %q for the contract v1beta2, and serves %s", kind, got, crd.Spec.Versions[0].Name)
		}
		if crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
			t.Errorf("%s is %s", kind, crd.Spec.Scope)
		}
	}
}

// TestSchemaKeepsFields: the API server drops the fields that the schema doesn't know, so it must know all that the provider sets.
func TestSchemaKeepsFields(t *testing.T) {
	all := definitions(t)
	yes := true
	for kind, object := range map[string]any{
		"LabCluster": &LabCluster{
			Spec:   LabClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.168.99.1", Port: 6443}},
			Status: LabClusterStatus{Initialization: Initialization{Provisioned: &yes}},
		},
		"LabMachine": &LabMachine{
			Spec: LabMachineSpec{ProviderID: ProviderID("cp-1")},
			Status: LabMachineStatus{
				Initialization: Initialization{Provisioned: &yes},
				Addresses:      []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.168.99.50"}},
			},
		},
	} {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		version := all[kind].Spec.Versions[0]
		if version.Subresources == nil || version.Subresources.Status == nil {
			t.Errorf("%s has no subresource for its status", kind)
		}
		for _, part := range []string{"spec", "status"} {
			if missing := unknown(*version.Schema.OpenAPIV3Schema, fields[part], part); missing != nil {
				t.Errorf("the schema of %s lacks %v", kind, missing)
			}
		}
	}
}

// unknown lists the paths of an object's fields that its schema lacks.
func unknown(parent apiextensionsv1.JSONSchemaProps, value any, path string) []string {
	name := path[strings.LastIndex(path, ".")+1:]
	schema, known := parent.Properties[name]
	if !known {
		return []string{path}
	}
	if list, isList := value.([]any); isList {
		schema, value = *schema.Items.Schema, list[0]
	}
	fields, _ := value.(map[string]any)
	var all []string
	for name := range fields {
		all = append(all, unknown(schema, fields[name], path+"."+name)...)
	}
	slices.Sort(all)
	return all
}

// TestCopies: a changed copy leaves the original as it was.
func TestCopies(t *testing.T) {
	yes := true
	cluster := &LabCluster{Status: LabClusterStatus{Initialization: Initialization{Provisioned: &yes}}}
	machine := &LabMachine{Status: LabMachineStatus{
		Initialization: Initialization{Provisioned: &yes}, Addresses: []clusterv1.MachineAddress{{Address: "192.168.99.50"}},
	}}
	clusters := (&LabClusterList{Items: []LabCluster{*cluster}}).DeepCopyObject().(*LabClusterList)
	machines := (&LabMachineList{Items: []LabMachine{*machine}}).DeepCopyObject().(*LabMachineList)
	copies := []*Initialization{
		&cluster.DeepCopyObject().(*LabCluster).Status.Initialization, &clusters.Items[0].Status.Initialization,
		&machine.DeepCopyObject().(*LabMachine).Status.Initialization, &machines.Items[0].Status.Initialization,
	}
	for _, c := range copies {
		*c.Provisioned = false
	}
	machines.Items[0].Status.Addresses[0].Address = "changed"
	machine.DeepCopyObject().(*LabMachine).Status.Addresses[0].Address = "changed"
	if !yes || machine.Status.Addresses[0].Address != "192.168.99.50" {
		t.Errorf("provisioned is %v, the address %v", yes, machine.Status.Addresses)
	}
}
