// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func pool(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "net.example/v1", "kind": "Pool", "metadata": map[string]any{"name": "all"}, "spec": map[string]any{"cidr": "10.1.0.0/16"},
	}}
	u.SetNamespace(namespace)
	return u
}

const pools = `{"kind": "APIResourceList", "groupVersion": "net.example/v1", "resources": [
	{"name": "pools/status", "kind": "Pool", "namespaced": %N}, {"name": "pools", "kind": "Pool", "namespaced": %N}]}`

// TestEnsureAnyKind: for a kind that Slipway doesn't write itself, the API says where its objects are, once it knows the kind.
func TestEnsureAnyKind(t *testing.T) {
	for name, c := range map[string]struct{ namespaced, namespace, at string }{
		"cluster-wide":           {"false", "", "/apis/net.example/v1/pools/all"},
		"in a namespace":         {"true", "net", "/apis/net.example/v1/namespaces/net/pools/all"},
		"in the default one":     {"true", "", "/apis/net.example/v1/namespaces/default/pools/all"},
		"in one that it has not": {"false", "net", "/apis/net.example/v1/pools/all"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			early := 2 // tries before the kind's definition is established
			a.SpoilFirst(func(r *http.Request) fakeapi.Fault {
				if r.URL.Path != "/apis/net.example/v1" || early == 0 {
					return nil
				}
				early--
				return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) { http.NotFound(w, r) }
			})
			a.Answer("/apis/net.example/v1", strings.ReplaceAll(pools, "%N", c.namespaced))
			r := a.client(t)
			a.Put("/api/v1/namespaces/net", map[string]any{"metadata": map[string]any{"name": "net"}})
			d, err := r.Compare(t.Context(), pool(c.namespace))
			if err != nil || d.Change != Create {
				t.Fatalf("before: %v, %v", d, err)
			}
			err = r.Ensure(t.Context(), pool(c.namespace))
			if err != nil || !a.Has(c.at) {
				t.Fatalf("no %s: %v", c.at, err)
			}
			if d, err = r.Compare(t.Context(), pool(c.namespace)); err != nil || d.Change != None {
				t.Errorf("after: %v, %v", d, err)
			}
		})
	}
}

// TestEnsureDropsNamespaces drops namespaces from objects of cluster-wide kinds, as kubectl does with a user's manifest.
func TestEnsureDropsNamespaces(t *testing.T) {
	t.Parallel()
	const at = "/apis/rbac.authorization.k8s.io/v1/clusterroles/agent"
	a := newAPI(t)
	r, role := a.client(t), anObject("rbac.authorization.k8s.io/v1", "ClusterRole", "kube-system", "agent")
	for range 2 {
		if err := r.Ensure(t.Context(), role); err != nil {
			t.Fatal(err)
		}
	}
	if writes := a.Writes(); len(writes) != 1 || writes[0] != "POST "+at {
		t.Errorf("wrote %q", writes)
	}
	if namespace, has := a.Objects()[at]["metadata"].(map[string]any)["namespace"]; has || role.GetNamespace() != "kube-system" {
		t.Errorf("sent namespace %v, and the caller has %q", namespace, role.GetNamespace())
	}
}

func TestEnsureUnknownKind(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	err := a.client(t).Ensure(t.Context(), pool(""))
	fact.Error(t, err, "create Pool all", "no kind Pool", "net.example/v1")
}

// TestPlanAnyKind: a plan doesn't need to know an object's place in the API.
func TestPlanAnyKind(t *testing.T) {
	var got []string
	p := NewPlan(func(a Action) { got = append(got, string(a.Verb)+" "+a.Kind+" "+a.Name) }, nil)
	if err := p.Ensure(t.Context(), pool("")); err != nil || len(got) != 1 || got[0] != "ensure Pool all" {
		t.Errorf("%q, %v", got, err)
	}
}
