// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// anyKind is for kinds missing from the table, which only users' manifests have: the API says where such objects live.
func anyKind(obj Object) (kind, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return kind{}, false
	}
	return kind{apiVersion: u.GetAPIVersion(), name: u.GetKind(), namespaced: u.GetNamespace() != ""}, true
}

// located returns w with its kind's place in the API. found is false if the API doesn't have the kind (yet): its definition may
// not be established yet.
func (c *conn) located(ctx context.Context, w wanted) (_ wanted, found bool, err error) {
	if w.kind.plural != "" {
		return w, true, nil
	}
	data, err := c.do(ctx, c.client.Verb(http.MethodGet).AbsPath(w.kind.root()))
	if apierrors.IsNotFound(err) { // in plain text: the server doesn't know the group
		return w, false, nil
	}
	if err != nil {
		return w, false, errors.Wrapf(err, "list the kinds of %s", w.kind.apiVersion)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(data, &list); err != nil {
		return w, false, errors.Wrapf(err, "list the kinds of %s: decode the answer", w.kind.apiVersion)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == w.kind.name && !strings.Contains(r.Name, "/")
	})
	if i < 0 {
		return w, false, nil
	}
	w.kind.plural, w.kind.namespaced = list.APIResources[i].Name, list.APIResources[i].Namespaced
	w.ref = w.settled()
	return w.withoutNamespace(), true, nil
}

func (r *Real) located(ctx context.Context, w wanted) (_ wanted, found bool, err error) {
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		w, found, err = c.located(ctx, w)
		return err
	})
	return w, found, err
}

func (c *conn) ensureAny(ctx context.Context, w wanted) error {
	if w.kind.plural != "" {
		return c.ensure(ctx, usual(), w)
	}
	early, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	there := w
	err := usual().Do(early, func(ctx context.Context) (err error) {
		found := false
		there, found, err = c.located(ctx, w)
		if err == nil && !found {
			return notYetError{errors.Errorf("create %s: %s", w.ref, noKind(w.kind.name, w.kind.apiVersion))}
		}
		return err
	})
	if err != nil {
		return c.advise(err)
	}
	return c.ensure(ctx, usual(), there)
}
