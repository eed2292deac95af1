// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// isList reports whether a GET request's parameters are those of a list.
func isList(q url.Values) bool {
	return q.Has("fieldSelector") || q.Has("labelSelector") || q.Has("limit")
}

// list lists the matching objects of a collection, or of all namespaces, in pages. A paged request for an empty collection gets a
// 404, as for an unknown collection.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	items, known := s.matching(r.URL.Path, selector, q.Get("fieldSelector"))
	if !known && q.Has("limit") {
		refuse(w, apierrors.NewNotFound(resource(r.URL.Path), ""))
		return
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	to := len(items)
	list := map[string]any{}
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		list["continue"], list["remainingItemCount"] = strconv.Itoa(to), len(items)-to
	}
	send(w, http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": list, "items": items[from:to]})
}

// matching returns the objects of a collection that match the selectors. known reports whether it has any objects.
func (s *Server) matching(collection string, selector labels.Selector, field string) (items []any, known bool) {
	items = []any{}
	name, value, byField := strings.Cut(field, "=")
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		everywhere, _ := path.Match(path.Dir(collection)+"/namespaces/*/"+path.Base(collection)+"/*", at)
		if path.Dir(at) != collection && !everywhere {
			continue
		}
		known = true
		got, _, _ := unstructured.NestedString(s.objects[at], strings.Split(name, ".")...)
		has, _, _ := unstructured.NestedStringMap(s.objects[at], "metadata", "labels")
		if (!byField || got == value) && selector.Matches(labels.Set(has)) {
			items = append(items, s.objects[at])
		}
	}
	return items, known
}
