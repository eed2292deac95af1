// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The changes an intent would make to the cluster as it is now.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
	None   = "none"
)

// Difference is the change an intent would make.
type Difference struct {
	// Change is Create, Update, Delete or None. It's empty if Err says why it isn't known.
	Change string
	Err    error
	// Before and After are the fields of an object to update, without the fields the server manages; nil for a Secret.
	Before, After map[string]any
}

// CompareWith makes p compare each intent with the cluster now. If a question gets no answer, p stops asking.
func (p *Plan) CompareWith(now *Real) { p.now = now }

// compare returns the answer of ask. It needs p.mu.
func (p *Plan) compare(ask func(now *Real) (Difference, error)) *Difference {
	if p.now == nil {
		return nil
	}
	d, err := Difference{}, p.unread
	if err == nil {
		d, err = ask(p.now)
	}
	if err != nil {
		p.now = nil
		return &Difference{Err: err}
	}
	return &d
}

// reading asks the live cluster, or the cluster to compare with, for objects this run hasn't written. If the latter doesn't
// answer, it counts as empty, and the next comparison reports the error.
func (p *Plan) reading(ask func(Cluster) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.live != nil:
		return ask(p.live)
	case p.now == nil || p.unread != nil:
		return nil // the next comparison reports unread
	}
	p.unread = ask(p.now)
	return nil
}

// Compare also returns changes the API would refuse.
func (r *Real) Compare(ctx context.Context, obj Object) (Difference, error) {
	return r.compare(ctx, obj, false)
}

// compare compares obj with the API's. With strict, a change the API would refuse is an error.
func (r *Real) compare(ctx context.Context, obj Object, strict bool) (d Difference, err error) {
	w, err := want(obj)
	if err != nil {
		return d, err
	}
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		var live map[string]any
		there, found, err := c.located(ctx, w)
		if err == nil && found {
			live, found, err = c.get(ctx, there.ref)
		}
		switch {
		case err != nil:
			return err
		case !found:
			d.Change = Create
			return nil
		}
		d, err = difference(obj, there, live, strict)
		return err
	})
	return d, err
}

// difference returns the change that gives live the fields set in obj (w).
func difference(obj Object, w wanted, live map[string]any, strict bool) (Difference, error) {
	after := changed(w, live)
	if after == nil {
		return Difference{Change: None}, nil
	}
	if strict {
		if err := checkImmutable(w, live); err != nil {
			return Difference{}, err
		}
	}
	d := Difference{Change: Update}
	if _, secret := obj.(*corev1.Secret); !secret {
		d.Before, d.After = ownFields(live), ownFields(after)
	}
	return d, nil
}

func (r *Real) deletionOf(ctx context.Context, obj Object) (Difference, error) {
	found, err := r.Get(ctx, obj.DeepCopyObject().(Object))
	if err != nil || !found {
		return Difference{Change: None}, err
	}
	return Difference{Change: Delete}, nil
}

// markingOf returns MarkNode's change. A Node that isn't registered yet will be by then.
func (r *Real) markingOf(ctx context.Context, name string, mark Mark) (Difference, error) {
	live := NewNode(name)
	found, err := r.Get(ctx, live)
	switch {
	case err != nil:
		return Difference{}, err
	case !found:
		return Difference{Change: Update}, nil
	case markPatch(live, mark) == nil:
		return Difference{Change: None}, nil
	}
	after := live.DeepCopy()
	after.Labels, after.Annotations = joined(live.Labels, mark.Labels), joined(live.Annotations, mark.Annotations)
	after.Spec.Taints = withTaints(live.Spec.Taints, mark.Taints)
	return Difference{Change: Update, Before: marksOf(live), After: marksOf(after)}, nil
}

func joined(have, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, have)
	maps.Copy(all, more)
	return all
}

func marksOf(n *corev1.Node) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": n.Labels, "annotations": n.Annotations},
		"spec":     map[string]any{"taints": n.Spec.Taints},
	}
}

// ownFields returns a copy without the fields the server manages.
func ownFields(fields map[string]any) map[string]any {
	fields = runtime.DeepCopyJSON(fields)
	delete(fields, "status")
	dropServerMetadata(fields)
	return fields
}

// Fields names the fields an update changes, sorted, such as spec.template.spec.containers[coredns].image; none for a Secret.
func (d Difference) Fields() []string {
	found := unlike(d.Before, d.After, "", "")
	if len(found) == 0 { // the live object has more than it should, such as an extra rule in a role
		found = unlike(d.After, d.Before, "", "")
	}
	return found
}

// unlike returns the paths, below path, of the fields where live doesn't match ours.
func unlike(live, ours any, path, member string) []string {
	if holds(live, ours, member) {
		return nil
	}
	switch ours := ours.(type) {
	case map[string]any:
		if live, ok := live.(map[string]any); ok {
			return unlikeMembers(live, ours, path, member)
		}
	case []any:
		if live, ok := live.([]any); ok && len(live) == len(ours) {
			var found []string
			for i, value := range ours {
				found = append(found, unlike(live[i], value, fmt.Sprintf("%s[%v]", path, nameOf(value, i)), member)...)
			}
			return found
		}
	}
	return []string{path}
}

func unlikeMembers(live, ours map[string]any, path, member string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if isQuantities(member) && sameQuantity(live[name], ours[name]) {
			continue
		}
		below := name
		if path != "" {
			below = path + "." + name
		}
		found = append(found, unlike(live[name], ours[name], below, name)...)
	}
	return found
}

// nameOf returns an element's name, or its index in the list.
func nameOf(element any, index int) any {
	if fields, ok := element.(map[string]any); ok {
		if name, ok := fields["name"].(string); ok {
			return name
		}
	}
	return index
}
