// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// change returns the object to write so that live has everything w sets, or nil if it already does. It modifies neither argument.
//
//   - A map satisfies w if it has all of the wanted members; members that
//     others added stay.
//   - A list satisfies w if it has the same length and each element satisfies
//     the wanted element in its place. Otherwise the whole list is replaced.
//   - nil, an empty map and an empty list are the same: not set.
//   - An existing Deployment keeps its replicas: scaling is up to the user.
//   - A binding keeps the subjects that others added.
//   - A role's rules must match exactly: an extra field in a rule, such as
//     resourceNames, makes it grant less.
//
// docs/design/comparing-objects.md says why the API server doesn't do this.
func change(w wanted, live map[string]any) (map[string]any, error) {
	after := changed(w, live)
	if after == nil {
		return nil, nil
	}
	return after, checkImmutable(w, live)
}

// changed is change without the check of immutable fields.
func changed(w wanted, live map[string]any) map[string]any {
	fields, live := runtime.DeepCopyJSON(w.fields), runtime.DeepCopyJSON(live)
	same := true
	switch w.kind.name {
	case "Deployment":
		unstructured.RemoveNestedField(fields, "spec", "replicas")
	case "RoleBinding", "ClusterRoleBinding":
		keepSubjects(fields, live)
	case "Role", "ClusterRole":
		same = holds(live["rules"], fields["rules"], "") && holds(fields["rules"], live["rules"], "")
		live["rules"] = fields["rules"]
	}
	if same && holds(live, fields, "") {
		return nil
	}
	return overlay(live, fields).(map[string]any)
}

// immutable maps kinds to the field the API doesn't let anyone change in an existing object.
var immutable = map[string][]string{
	"ClusterRoleBinding": {"roleRef"},
	"DaemonSet":          {"spec", "selector"},
	"Deployment":         {"spec", "selector"},
	"RoleBinding":        {"roleRef"},
	"Secret":             {"type"},
	"Service":            {"spec", "clusterIP"},
}

// checkImmutable returns an error plainer than the server's if an update would change an immutable field. Slipway doesn't delete
// the object itself: the cluster would be without it for a moment, and others may depend on it.
func checkImmutable(w wanted, live map[string]any) error {
	path := immutable[w.kind.name]
	if path == nil {
		return nil
	}
	ours, _, _ := unstructured.NestedFieldNoCopy(w.fields, path...)
	theirs, _, _ := unstructured.NestedFieldNoCopy(live, path...)
	if ours == nil || holds(theirs, ours, "") {
		return nil
	}
	return errors.Errorf("update %s: %s is %s and should be %s, but the API does not allow changing it; check the object, delete it, and run the same command again",
		w.ref, strings.Join(path, "."), compact(theirs), compact(ours))
}

func compact(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "unreadable"
	}
	return string(data)
}

func keepSubjects(fields, live map[string]any) {
	all, _ := live["subjects"].([]any)
	ours, _ := fields["subjects"].([]any)
	all = slices.Clone(all)
	for _, subject := range ours {
		if !slices.ContainsFunc(all, func(s any) bool { return holds(s, subject, "") }) {
			all = append(all, subject)
		}
	}
	fields["subjects"] = all
}

// holds reports whether live has everything ours sets. member names the field both values belong to.
func holds(live, ours any, member string) bool {
	if unset(ours) {
		return true
	}
	switch ours := ours.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range ours {
			if isQuantities(member) && sameQuantity(live[name], value) {
				continue
			}
			if !holds(live[name], value, name) {
				return false
			}
		}
		return true
	case []any:
		live, ok := live.([]any)
		return ok && slices.EqualFunc(live, ours, func(l, o any) bool { return holds(l, o, member) })
	}
	return number(live) == number(ours)
}

// isQuantities reports whether a member's values are quantities. In the kinds written here, only resource requirements are.
func isQuantities(member string) bool { return member == "limits" || member == "requests" }

func sameQuantity(a, b any) bool {
	left, okLeft := a.(string)
	right, okRight := b.(string)
	if !okLeft || !okRight {
		return false
	}
	x, errX := resource.ParseQuantity(left)
	y, errY := resource.ParseQuantity(right)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

// number makes JSON numbers comparable: they're int64 or float64, depending on how they're written.
func number(value any) any {
	if n, ok := value.(int64); ok {
		return float64(n)
	}
	return value
}

func overlay(live, ours any) any {
	if unset(ours) {
		return live
	}
	switch ours := ours.(type) {
	case map[string]any:
		out, ok := live.(map[string]any)
		if !ok {
			return ours
		}
		for name, value := range ours {
			out[name] = overlay(out[name], value)
		}
		return out
	case []any:
		live, _ := live.([]any)
		return overlayList(live, ours)
	}
	return ours
}

// overlayList returns ours, but keeps the server's version of elements that live already has. It doesn't merge differing
// elements: only the server knows which fields exclude each other (a volume's sources, a probe's handlers).
func overlayList(live, ours []any) []any {
	out := make([]any, 0, len(ours))
	for _, value := range ours {
		i := slices.IndexFunc(live, func(l any) bool { return holds(l, value, "") })
		if i < 0 {
			out = append(out, value)
			continue
		}
		out = append(out, live[i])
	}
	return out
}

func unset(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
