// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"io"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

func Network(n *config.Node, patches config.PatchSet) ([]Object, error) {
	switch {
	case n.NetworkAddOn.FromFile():
		objs, err := parse(n.NetworkAddOn.Manifest)
		return objs, errors.Wrapf(err, "--network %s", n.NetworkAddOn.File())
	case n.NetworkAddOn.Name == config.Flannel:
		return Flannel(n, patches)
	}
	return nil, nil
}

// parse reads a stream of YAML or JSON documents, as `kubectl apply` takes it. Objects without a namespace are in namespace
// default, if their kind has namespaces.
func parse(data []byte) ([]Object, error) {
	var objs []Object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for count := 1; ; count++ {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Wrapf(err, "document %d is not an object of the API", count)
		}
		if len(fields) == 0 { // only comments
			continue
		}
		more, err := objectsOf(&unstructured.Unstructured{Object: fields})
		if err != nil {
			return nil, errors.WithMessagef(err, "document %d", count)
		}
		objs = append(objs, more...)
	}
	if len(objs) == 0 {
		return nil, errors.New("it contains no object; give a manifest as for `kubectl apply`")
	}
	return objs, nil
}

// objectsOf returns the object, or a list's objects.
func objectsOf(u *unstructured.Unstructured) ([]Object, error) {
	if u.IsList() {
		var objs []Object
		err := u.EachListItem(func(item runtime.Object) error {
			more, err := objectsOf(item.(*unstructured.Unstructured))
			objs = append(objs, more...)
			return err
		})
		return objs, err
	}
	switch {
	case u.GetAPIVersion() == "" || u.GetKind() == "":
		return nil, errors.New("it has no apiVersion or no kind")
	case u.GetName() == "":
		return nil, errors.Errorf("a %s without metadata.name", u.GetKind())
	case u.GetKind() == "Secret" && u.GetAPIVersion() == "v1": // typed, so that a plan hides its content
		secret := &corev1.Secret{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, secret, true); err != nil {
			return nil, errors.Wrapf(err, "Secret %s", u.GetName())
		}
		if secret.Namespace == "" {
			secret.Namespace = metav1.NamespaceDefault
		}
		return []Object{secret}, nil
	}
	return []Object{u}, nil
}
