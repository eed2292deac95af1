// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"reflect"
	"slices"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Versions are Slipway's versions of one object, the basis of a merge.
type Versions struct {
	Old Object // an earlier run's object
	// New is the object wanted now, with the user's patches; Plain is the same without them.
	New, Plain Object
}

// Merge updates live, an object of the same Go type read from the API, from the old to the new version, and reports whether
// it changed. A field gets the new value if it has the old value, or if a patch sets it; any other value was edited, and stays.
// Additions in live stay, too: fields, keys, and elements of lists whose elements have names. Such an element stays or goes as a whole,
// and a volume stays while a container mounts it.
func Merge(live Object, v Versions) (changed bool, err error) {
	var trees [4]map[string]any
	for i, obj := range []Object{live, v.New, v.Plain, v.Old} {
		if trees[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
			return false, errors.Wrapf(err, "compare %s", obj.GetName())
		}
		delete(trees[i], "status")
		if i > 0 { // the live object keeps the server's
			dropServerMetadata(trees[i])
		}
	}
	m := merging{live: trees[0], wanted: trees[1], plain: trees[2], old: trees[3]}
	before := runtime.DeepCopyJSON(trees[0])
	after, _ := m.merged("").(map[string]any)
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	reflect.ValueOf(live).Elem().SetZero()
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(after, live)
	return true, errors.Wrapf(err, "merge %s", v.New.GetName())
}

// merging holds one value in each version of an object; nil where it isn't set.
type merging struct{ live, wanted, plain, old any }

// merged returns the new live value; nil removes it. member names the field it belongs to.
func (m merging) merged(member string) any {
	live, isMap := m.live.(map[string]any)
	if wanted, both := m.wanted.(map[string]any); isMap && (both || m.wanted == nil) {
		return m.mergedMap(live, wanted)
	}
	if wanted, both := named(m.wanted); both {
		if live, both := named(m.live); both {
			return m.mergedList(live, wanted)
		}
	}
	ours := unset(m.old) && unset(m.live) || !unset(m.old) && holds(m.live, m.old, member)
	if member == "rules" { // an extra field in a rule, such as resourceNames, makes it a different rule
		ours = ours && holds(m.old, m.live, member)
	}
	if !ours && equality.Semantic.DeepEqual(m.wanted, m.plain) || !unset(m.wanted) && holds(m.live, m.wanted, member) {
		return m.live
	}
	return m.wanted
}

func (m merging) mergedMap(live, wanted map[string]any) any {
	plain, _ := m.plain.(map[string]any)
	old, _ := m.old.(map[string]any)
	out := maps.Clone(live)
	for _, fields := range []map[string]any{wanted, plain, old} {
		for name := range fields {
			value := merging{live: live[name], wanted: wanted[name], plain: plain[name], old: old[name]}.merged(name)
			if value != nil {
				out[name] = value
			} else if live[name] != nil {
				delete(out, name)
			}
		}
	}
	if wanted == nil && (len(out) == 0 || len(plain)+len(old) > 0 && onlyDefaults(out)) {
		return nil
	}
	keepMounted(live, out)
	return out
}

// keepMounted keeps the volumes of a Pod that its containers mount after a merge: a mount stays that somebody has edited or added, and
// without its volume, the API would refuse the Pod.
func keepMounted(live, out map[string]any) {
	before, _ := live["volumes"].([]any)
	for _, volume := range before {
		after, _ := out["volumes"].([]any)
		if name := nameOf(volume, 0); find(after, name) == nil && mounts(out, name) {
			out["volumes"] = append(slices.Clone(after), volume)
		}
	}
}

// mounts reports whether a container in a Pod's spec mounts a volume.
func mounts(spec map[string]any, volume any) bool {
	for _, kind := range []string{"containers", "initContainers"} {
		containers, _ := spec[kind].([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			list, _ := container["volumeMounts"].([]any)
			if find(list, volume) != nil {
				return true
			}
		}
	}
	return false
}

// goes reports whether a list's element that isn't wanted goes, with all that was added to it: a patch removes it, or a release does
// and nobody has changed it.
func (m merging) goes() bool {
	return m.plain != nil || m.old != nil && holds(m.live, m.old, "")
}

// apiDefaults are values that the API adds to volumes and probes, which are invalid without the rest.
var apiDefaults = map[string]any{
	"type": "", "defaultMode": int64(0o644), "scheme": "HTTP", "service": "",
	"timeoutSeconds": int64(1), "periodSeconds": int64(10), "successThreshold": int64(1), "failureThreshold": int64(3),
}

func onlyDefaults(fields map[string]any) bool {
	for name, value := range fields {
		if below, is := value.(map[string]any); is && onlyDefaults(below) {
			continue
		}
		if usual, has := apiDefaults[name]; !has || number(value) != number(usual) {
			return false
		}
	}
	return true
}

// mergedList keeps the live list's order, and appends new elements.
func (m merging) mergedList(live, wanted []any) any {
	plain, _ := m.plain.([]any)
	old, _ := m.old.([]any)
	var out []any
	for _, element := range live {
		name := nameOf(element, 0)
		part := merging{live: element, wanted: find(wanted, name), plain: find(plain, name), old: find(old, name)}
		switch {
		case part.wanted != nil:
			out = append(out, part.merged(""))
		case !part.goes(): // whole: a rest of it would have no name
			out = append(out, element)
		}
	}
	for _, element := range wanted {
		name := nameOf(element, 0)
		removed := find(old, name) != nil && find(plain, name) != nil // by an operator
		if find(live, name) == nil && !removed {
			out = append(out, element)
		}
	}
	return out
}

// named returns a list whose elements all have names.
func named(value any) (list []any, is bool) {
	list, is = value.([]any)
	return list, is && len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { _, has := nameOf(e, 0).(string); return !has })
}

func find(list []any, name any) any {
	i := slices.IndexFunc(list, func(e any) bool { return nameOf(e, 0) == name })
	if i < 0 {
		return nil
	}
	return list[i]
}
