// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// listPage lists the objects of a collection, or of all namespaces, that a label selector matches, in pages. A collection
// without any object is not found, as one that the API does not have.
func (s *Server) listPage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	group, plural := path.Split(r.URL.Path)
	inAll := group + "namespaces/"
	items, known := []any{}, false
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		collection := path.Dir(at)
		if collection != r.URL.Path && !(strings.HasPrefix(collection, inAll) && path.Base(collection) == plural) {
			continue
		}
		known = true
		var meta struct {
			Metadata struct{ Labels labels.Set }
		}
		data, _ := json.Marshal(s.objects[at])
		_ = json.Unmarshal(data, &meta)
		if selector.Matches(meta.Metadata.Labels) {
			items = append(items, s.objects[at])
		}
	}
	if !known {
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
