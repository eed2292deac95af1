// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"slices"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// change returns what must be written so that live holds all that w sets, or
// nil when it does already. Neither argument is changed.
//
//   - A map holds the wanted one when it has all of its members; members that
//     others added stay.
//   - A list holds the wanted one when it is as long and each element holds
//     the wanted element in its place. A list that does not is written whole.
//   - Nothing, an empty map and an empty list are the same: not set.
//   - An existing Deployment keeps its number of replicas: scaling it is the
//     user's business.
//   - A binding keeps the subjects that others added.
//   - The rules of a role must be exactly the wanted ones: a rule with one
//     more field, such as resourceNames, grants less.
func change(w wanted, live map[string]any) (map[string]any, error) {
	after := changed(w, live)
	if after == nil {
		return nil, nil
	}
	return after, checkImmutable(w, live)
}

// changed is change without the question whether the API allows it.
func changed(w wanted, live map[string]any) map[string]any {
	fields, live := runtime.DeepCopyJSON(w.fields), runtime.DeepCopyJSON(live)
	same := true
	switch w.kind.name {
	case "Deployment":
		delete(submap(fields, "spec"), "replicas")
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

// immutable lists the fields that the API does not let anyone change in an
// existing object.
var immutable = []struct {
	kind string
	path []string
	show string
}{
	{"ClusterRoleBinding", []string{"roleRef"}, "roleRef"},
	{"DaemonSet", []string{"spec", "selector"}, "spec.selector"},
	{"Deployment", []string{"spec", "selector"}, "spec.selector"},
	{"RoleBinding", []string{"roleRef"}, "roleRef"},
	{"Secret", []string{"type"}, "type"},
	{"Service", []string{"spec", "clusterIP"}, "spec.clusterIP"},
}

// checkImmutable tells what stands in the way of an update, before the server
// does so less plainly. Slipway does not delete the object itself: for a
// moment the cluster would be without it, and it may be another's.
func checkImmutable(w wanted, live map[string]any) error {
	for _, row := range immutable {
		if row.kind != w.kind.name {
			continue
		}
		ours, theirs := lookup(w.fields, row.path), lookup(live, row.path)
		if ours != nil && !holds(theirs, ours, "") {
			return errors.Errorf("update %s: %s is %s and should be %s, but the API does not let it change; look at the object, delete it, and run this again",
				w.ref, row.show, compact(theirs), compact(ours))
		}
	}
	return nil
}

func lookup(fields map[string]any, path []string) any {
	var value any = fields
	for _, name := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}

func compact(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "unreadable"
	}
	return string(data)
}

// submap returns a member that is a map; where there is none, an empty one
// that is not connected.
func submap(fields map[string]any, name string) map[string]any {
	if m, ok := fields[name].(map[string]any); ok {
		return m
	}
	return map[string]any{}
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

// holds tells whether live has everything that ours sets. member is the name
// under which both are found.
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
	return live == ours || sameNumber(live, ours)
}

// isQuantities tells whether a member's values are quantities: resource
// requirements are the only ones among the kinds that are written here.
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

// sameNumber compares JSON numbers, which are int64 or float64 by how they are
// written.
func sameNumber(a, b any) bool {
	x, okX := number(a)
	y, okY := number(b)
	return okX && okY && x == y
}

func number(value any) (float64, bool) {
	switch n := value.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// overlay returns live with ours written over it.
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

// overlayList returns ours; but an element that live holds already stays as
// the server has it. Elements that differ are not merged: which fields exclude
// each other (a volume's sources, a probe's handlers) only the server knows.
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
