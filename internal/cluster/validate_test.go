// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func anObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
	u.SetNamespace(namespace)
	return u
}

const services = "/api/v1/namespaces/kube-system/services"

func service(address, app string) *unstructured.Unstructured {
	u := anObject("v1", "Service", "kube-system", "pool")
	u.Object["spec"] = map[string]any{
		"type": "NodePort", "clusterIP": address, "selector": map[string]any{"app": app},
		"ports": []any{map[string]any{"port": int64(80), "nodePort": int64(30080)}},
	}
	return u
}

// immutableField is checkImmutable's message about obj if the API has live.
func immutableField(t *testing.T, obj, live Object) string {
	t.Helper()
	w, err := want(obj)
	if err != nil {
		t.Fatal(err)
	}
	have, err := want(live)
	if err != nil {
		t.Fatal(err)
	}
	return checkImmutable(w, have.fields).Error()
}

// TestValidate: the API says why it refuses objects, and nothing is written.
func TestValidate(t *testing.T) {
	selector := field.Required(field.NewPath("spec", "selector"), "")
	there := service("10.96.0.50", "live")
	taken := field.Invalid(field.NewPath("spec", "clusterIPs"), "10.96.0.50", "provided IP is already allocated")
	image := field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(0).Child("image"), "A", "no capitals")
	definition := anObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "pools.net.example")
	definition.Object["spec"] = map[string]any{"group": "net.example", "names": map[string]any{"kind": "Pool"}}
	agent := func(namespace string) *unstructured.Unstructured {
		return anObject("apps/v1", "DaemonSet", namespace, "agent")
	}
	for name, tt := range map[string]struct {
		objs   []Object
		answer map[string]*apierrors.StatusError // to the creation of one object, by collection, or to its update
		want   []Verdict                         // of the last object
		untold bool
	}{
		"accepted":      {objs: []Object{agent("kube-system")}, want: []Verdict{{}}},
		"there already": {objs: []Object{anObject("v1", "Namespace", "", "kube-system")}, want: []Verdict{{}}},
		"there already, with an address and a port of its own": {objs: []Object{service("10.96.0.50", "new")}, answer: map[string]*apierrors.StatusError{
			services: apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "pool", field.ErrorList{taken}),
		}, want: []Verdict{{}}},
		"there already, and refused": {objs: []Object{service("10.96.0.50", "new")}, answer: map[string]*apierrors.StatusError{
			services + "/pool": apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "pool", field.ErrorList{selector}),
		}, want: []Verdict{{Refusals: []Refusal{{"spec.selector", "Required value"}}}}},
		"there already, and just the same": {objs: []Object{there}, answer: map[string]*apierrors.StatusError{
			services + "/pool": apierrors.NewBadRequest("nothing to write"),
		}, want: []Verdict{{}}},
		"there already, with another address": {objs: []Object{service("10.96.0.51", "live")},
			want: []Verdict{{Refusals: []Refusal{{"", immutableField(t, service("10.96.0.51", "live"), there)}}}}},
		"in a namespace that its kind has not": {objs: []Object{anObject("rbac.authorization.k8s.io/v1", "ClusterRole", "kube-system", "agent")}, want: []Verdict{{}}},
		"invalid": {objs: []Object{agent("kube-system")}, answer: map[string]*apierrors.StatusError{
			"/apis/apps/v1/namespaces/kube-system/daemonsets": apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, "agent", field.ErrorList{selector, image}),
		}, want: []Verdict{{Refusals: []Refusal{{"spec.selector", "Required value"}, {"spec.template.spec.containers[0].image", `Invalid value: "A": no capitals`}}}}},
		"unknown field": {objs: []Object{agent("kube-system")}, answer: map[string]*apierrors.StatusError{
			"/apis/apps/v1/namespaces/kube-system/daemonsets": apierrors.NewBadRequest(`strict decoding error: unknown field "a"`),
		}, want: []Verdict{{Refusals: []Refusal{{"", `strict decoding error: unknown field "a"`}}}}},
		"in a namespace of the same manifest": {objs: []Object{anObject("v1", "Namespace", "", "net"), agent("net")}, answer: map[string]*apierrors.StatusError{
			"/apis/apps/v1/namespaces/default/daemonsets": apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, "agent", field.ErrorList{selector}),
		}, want: []Verdict{{}, {Refusals: []Refusal{{"spec.selector", "Required value"}}}}},
		"a kind of the same manifest": {objs: []Object{definition, pool("")}, want: []Verdict{{}, {}}, untold: true},
		"a kind of an operator's":     {objs: []Object{pool("")}, want: []Verdict{{}}, untold: true},
		"a kind that is gone": {objs: []Object{anObject("policy/v1beta1", "PodSecurityPolicy", "", "all")},
			want: []Verdict{{Refusals: []Refusal{{"apiVersion", noKind("PodSecurityPolicy", "policy/v1beta1")}}}}},
		"a webhook that takes no dry run": {objs: []Object{agent("kube-system")}, answer: map[string]*apierrors.StatusError{
			"/apis/apps/v1/namespaces/kube-system/daemonsets": apierrors.NewBadRequest(`admission webhook "a" does not support dry run`),
		}, want: []Verdict{{}}, untold: true},
		"forbidden by admission": {objs: []Object{agent("kube-system")}, answer: map[string]*apierrors.StatusError{
			"/apis/apps/v1/namespaces/kube-system/daemonsets": apierrors.NewForbidden(schema.GroupResource{Resource: "daemonsets"}, "agent", errors.New("quota")),
		}, want: []Verdict{{}}, untold: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.Answer("/apis/apiextensions.k8s.io/v1", `{"kind": "APIResourceList", "resources": [{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"}]}`)
			a.put(t, there)
			var mu sync.Mutex
			var asked []string
			a.hook = func(r *http.Request, _ string) fakeapi.Fault {
				mu.Lock()
				defer mu.Unlock()
				if r.Method == http.MethodGet {
					return nil
				}
				if asked = append(asked, r.URL.RawQuery); tt.answer[r.URL.Path] != nil {
					return fakeapi.Refuse(tt.answer[r.URL.Path])
				}
				return nil
			}
			got, err := a.client(t).Validate(t.Context(), tt.objs...)
			if err != nil {
				t.Fatal(err)
			}
			last := &got[len(got)-1]
			if (last.UnknownReason != "") != tt.untold {
				t.Errorf("untold: %q", last.UnknownReason)
			}
			last.UnknownReason = ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, query := range asked {
				if !strings.Contains(query, "dryRun=All") || !strings.Contains(query, "fieldValidation=Strict") {
					t.Errorf("asked with %q", query)
				}
			}
			if writes := a.Writes(); len(writes) > 0 {
				t.Errorf("it wrote %q", writes)
			}
		})
	}
}

// TestValidateIsPatient retries errors that pass; no answer isn't an approval.
func TestValidateIsPatient(t *testing.T) {
	a := newAPI(t)
	a.faults[http.MethodPost] = []fakeapi.Fault{fakeapi.Trouble, fakeapi.Reset}
	if got, err := a.client(t).Validate(t.Context(), anObject("v1", "ConfigMap", "kube-system", "a")); err != nil || len(got[0].Refusals) > 0 || got[0].UnknownReason != "" {
		t.Errorf("%+v, %v", got, err)
	}
	gone := a.client(t)
	gone.options.Timeout = 50 * time.Millisecond
	a.Close()
	if _, err := gone.Validate(t.Context(), anObject("v1", "ConfigMap", "kube-system", "a")); err == nil {
		t.Error("no error without an API")
	}
}

// TestPlanDoesNotValidate: that would need the network.
func TestPlanDoesNotValidate(t *testing.T) {
	p := NewPlan(func(a Action) { t.Errorf("recorded %v", a) }, nil)
	if _, err := p.Validate(t.Context(), pool("")); !errors.Is(err, ErrNotInPlan) {
		t.Error(err)
	}
}
