// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	stdjson "encoding/json"
	"path"
	"reflect"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// kind says where the API keeps a kind of object. Slipway's own are all in the table, so only users' manifests need discovery.
type kind struct {
	apiVersion, name, plural string
	namespaced               bool
}

var kinds = []kind{
	{"v1", "ConfigMap", "configmaps", true},
	{"v1", "Secret", "secrets", true},
	{"v1", "ServiceAccount", "serviceaccounts", true},
	{"v1", "Service", "services", true},
	{"v1", "Pod", "pods", true},
	{"v1", "Node", "nodes", false},
	{"v1", "Namespace", "namespaces", false},
	{"apps/v1", "DaemonSet", "daemonsets", true},
	{"apps/v1", "Deployment", "deployments", true},
	{"rbac.authorization.k8s.io/v1", "Role", "roles", true},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true},
	{"rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false},
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false},
	{"coordination.k8s.io/v1", "Lease", "leases", true},
	{"discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true},
	{"v1", "Endpoints", "endpoints", true},
	{"certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false},
}

// root is the path of the kind's group and version in the API.
func (k kind) root() string {
	if k.apiVersion == "v1" {
		return "/api/v1"
	}
	return "/apis/" + k.apiVersion
}

type ref struct {
	kind            kind
	namespace, name string
}

func (r ref) String() string { return r.kind.name + " " + path.Join(r.namespace, r.name) }

// refOf returns an object's place in the API. Without apiVersion and kind, as in most Go literals, the Go type's name is the kind.
func refOf(obj Object) (ref, error) {
	apiVersion, name := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	if name == "" {
		name = reflect.Indirect(reflect.ValueOf(obj)).Type().Name()
	}
	u, untyped := obj.(*unstructured.Unstructured)
	k, err := kindOf(apiVersion, name)
	if err != nil && !untyped {
		return ref{}, err
	} else if err != nil { // only users' manifests have other kinds: the API says where such objects live
		k = kind{apiVersion: apiVersion, name: name, namespaced: u.GetNamespace() != ""}
	}
	if _, typed := obj.(*corev1.Secret); k.name == "Secret" && !typed {
		return ref{}, errors.Errorf("a Secret must be a *corev1.Secret, or a plan would not know what to hide in a %T", obj)
	}
	r := ref{kind: k, namespace: obj.GetNamespace(), name: obj.GetName()}
	if untyped { // treated as kubectl treats a user's manifest
		r = r.settled()
	}
	switch {
	case r.name == "":
		return ref{}, errors.Errorf("a %s without a name cannot be sent to the API", name)
	case k.namespaced && r.namespace == "":
		return ref{}, errors.Errorf("%s has no namespace", r)
	case !k.namespaced && r.namespace != "":
		return ref{}, errors.Errorf("%s: objects of this kind belong to no namespace", r)
	}
	return r, nil
}

// settled puts r in the default namespace if it names none, and in no namespace if its kind has none.
func (r ref) settled() ref {
	switch {
	case !r.kind.namespaced:
		r.namespace = ""
	case r.namespace == "":
		r.namespace = metav1.NamespaceDefault
	}
	return r
}

// kindOf searches the table; an empty apiVersion matches any.
func kindOf(apiVersion, name string) (kind, error) {
	for _, k := range kinds {
		if k.name == name && (apiVersion == "" || apiVersion == k.apiVersion) {
			return k, nil
		}
	}
	return kind{}, errors.Errorf("objects of kind %s, apiVersion %q, are not in the table of internal/cluster/kinds.go", name, apiVersion)
}

// wanted is the desired object: the fields the caller set, without the fields the server sets.
type wanted struct {
	ref
	fields map[string]any
}

// want returns the fields set in an object. It leaves out the fields the server sets (status, resourceVersion and others), so
// that an object read from the API can be changed and ensured.
func want(obj Object) (wanted, error) {
	r, err := refOf(obj)
	if err != nil {
		return wanted{}, err
	}
	var fields map[string]any
	data, err := stdjson.Marshal(copyOf(obj))
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return wanted{}, errors.Wrapf(err, "encode %s", r)
	}
	fields["apiVersion"], fields["kind"] = r.kind.apiVersion, r.kind.name
	delete(fields, "status")
	dropServerMetadata(fields)
	return wanted{ref: r, fields: fields}.in(r.namespace), nil
}

// in puts w into a namespace; empty for none.
func (w wanted) in(namespace string) wanted {
	w.fields, w.namespace = runtime.DeepCopyJSON(w.fields), namespace
	unstructured.RemoveNestedField(w.fields, "metadata", "namespace")
	if namespace != "" {
		_ = unstructured.SetNestedField(w.fields, namespace, "metadata", "namespace") // metadata is a map: it has a name
	}
	return w
}

func dropServerMetadata(fields map[string]any) {
	if meta, ok := fields["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
			delete(meta, field)
		}
	}
}

// copyOf copies an object, and a Secret as the server would store it: with all values in Data.
func copyOf(obj Object) Object {
	c := obj.DeepCopyObject().(Object)
	s, ok := c.(*corev1.Secret)
	if !ok || len(s.StringData) == 0 {
		return c
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	return c
}
