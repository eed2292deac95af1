// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests builds a cluster's objects from its configuration: static Pods (APIServer, Etcd and others), add-ons (CoreDNS,
// KubeProxy, Network), ConfigMaps, RBAC, bootstrap tokens, and the encrypted Secret kubeadm-certs. It also reads them back
// (DecodePod, FlagsOf, ReadEtcd) and compares static Pods (SameStaticPod). It does no I/O: the host's facts come in a HostView,
// and the clock and randomness as arguments.
package manifests

import (
	"bytes"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Object is any typed object of the API with its apiVersion and kind set.
type Object = interface {
	runtime.Object
	metav1.Object
}

// Encode returns obj as YAML, as in a manifest file.
func Encode(obj runtime.Object) ([]byte, error) {
	data, err := yaml.Marshal(obj)
	return data, errors.Wrapf(err, "cannot encode %s", obj.GetObjectKind().GroupVersionKind().Kind)
}

// patched applies a target's patches to obj, and returns the result in into.
func patched[T Object](obj Object, into T, patches config.PatchSet, target string) (T, error) {
	data, err := Encode(obj)
	if err != nil {
		return into, err
	}
	var empty T
	if data, err = patches.Apply(target, data, empty); err != nil {
		return into, err
	}
	return into, errors.Wrapf(yaml.Unmarshal(data, into), "cannot decode the patched %s", target)
}

// Print returns objs as a stream of YAML documents, for people and for `kubectl apply`. It leaves out the status, which belongs
// to the server, and the mark of generated configurations: objects a user applies are the user's.
func Print(objs []Object) ([]byte, error) {
	var out bytes.Buffer
	for _, obj := range objs {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, errors.Wrapf(err, "cannot print %s", obj.GetName())
		}
		u := unstructured.Unstructured{Object: fields}
		unstructured.RemoveNestedField(fields, "status")
		annotations := u.GetAnnotations()
		delete(annotations, configHashAnnotation)
		u.SetAnnotations(annotations)
		if u.GetKind() == "Service" {
			// An update of a Service must name the version it replaces; 0 matches any.
			u.SetResourceVersion("0")
		}
		data, err := yaml.Marshal(fields)
		if err != nil {
			return nil, errors.Wrapf(err, "cannot print %s", obj.GetName())
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

// Stages splits objs into namespaces and definitions of kinds, then objects that workloads refer to (accounts, ConfigMaps,
// Roles), and then the workloads. The objects of a stage don't depend on each other, so they can be written side by side.
func Stages(objs []Object) [][]Object {
	stages := make([][]Object, 3)
	for _, obj := range objs {
		at := 1
		switch obj.GetObjectKind().GroupVersionKind().Kind {
		case "Namespace", "CustomResourceDefinition":
			at = 0
		case "Deployment", "DaemonSet", "StatefulSet":
			at = 2
		}
		stages[at] = append(stages[at], obj)
	}
	return stages
}
