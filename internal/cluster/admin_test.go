// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

const bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins"

// authorizes makes the server forbid the administrator everything until delay after the binding exists.
func (a *api) authorizes(delay time.Duration) {
	var bound time.Time
	a.hook = func(_ *http.Request, user string) fakeapi.Fault {
		if bound.IsZero() && a.Has(bindingPath) {
			bound = time.Now()
		}
		if user == "super" || !bound.IsZero() && time.Since(bound) >= delay {
			return nil
		}
		return fakeapi.Forbidden
	}
}

func TestAdminBindingGolden(t *testing.T) {
	data, err := os.ReadFile("../../testdata/golden/cluster/clusterrolebinding_kubeadm-cluster-admins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want rbacv1.ClusterRoleBinding
	if err := yaml.UnmarshalStrict(data, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, adminBinding()); diff != "" {
		t.Errorf("-reference +got:\n%s", diff)
	}
}

func TestEnsureAdmin(t *testing.T) {
	t.Run("first of its cluster", func(t *testing.T) {
		a := newAPI(t)
		a.authorizes(150 * time.Millisecond)
		r := a.client(t)
		for range 2 {
			if err := r.EnsureAdmin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// The authorizer knows the binding by now: nobody should get a 403.
		if err := r.Ensure(t.Context(), configMap("c", nil)); err != nil {
			t.Error(err)
		}
		if a.written() != 2 {
			t.Errorf("%d writes, want the binding and the ConfigMap", a.written())
		}
	})
	t.Run("already bound", func(t *testing.T) {
		a := newAPI(t)
		a.put(t, adminBinding())
		r := a.client(t)
		r.options.SuperAdmin = "/missing"
		if err := r.EnsureAdmin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a.written() != 0 {
			t.Error("the binding was written")
		}
		before := len(a.seen())
		if err := r.EnsureAdmin(t.Context()); err != nil || len(a.seen()) != before {
			t.Errorf("asked again: %v, %v", err, a.seen()[before:])
		}
	})
	t.Run("bound, and the server is just starting", func(t *testing.T) {
		a := newAPI(t)
		a.put(t, adminBinding())
		a.authorizes(100 * time.Millisecond)
		r := a.client(t)
		r.options.SuperAdmin = "/missing"
		if err := r.EnsureAdmin(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("no super-admin.conf", func(t *testing.T) {
		a := newAPI(t)
		a.authorizes(0)
		r := a.client(t)
		r.options.SuperAdmin = filepath.Join(t.TempDir(), "super-admin.conf")
		r.options.Timeout = time.Second
		err := r.EnsureAdmin(t.Context())
		fact.Error(t, err, r.options.SuperAdmin, r.options.Kubeconfig, "missing", "create ClusterRoleBinding kubeadm:cluster-admins")
		fact.In(t, fault.Remedy(err), "`slipway init phase kubeconfig super-admin`")
	})
	t.Run("nobody may", func(t *testing.T) {
		a := newAPI(t)
		a.hook = func(*http.Request, string) fakeapi.Fault { return fakeapi.Forbidden }
		r := a.client(t)
		err := r.EnsureAdmin(t.Context())
		fact.Error(t, err, r.options.SuperAdmin, "right")
		fact.In(t, fault.Remedy(err), "kubeconfig")
	})
	t.Run("unreadable super-admin.conf", func(t *testing.T) {
		a := newAPI(t)
		a.authorizes(0)
		r := a.client(t)
		r.options.SuperAdmin = t.TempDir()
		if err := r.EnsureAdmin(t.Context()); err == nil || !strings.Contains(err.Error(), "read kubeconfig "+r.options.SuperAdmin) {
			t.Error(err)
		}
	})
}
