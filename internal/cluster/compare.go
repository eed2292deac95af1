// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
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
// answer, it counts as empty, and the next comparison reports the error. It needs p.mu.
func (p *Plan) reading(ask func(Cluster) error) error {
	switch {
	case p.live != nil:
		return ask(p.live)
	case p.now == nil || p.unread != nil:
		return nil //nolint:nilerr // the next comparison reports it
	}
	p.unread = ask(p.now)
	return nil
}

func (r *Real) Compare(ctx context.Context, obj Object) (Difference, error) {
	return r.compare(ctx, obj, asIs)
}

// changer is change or asIs.
type changer func(w wanted, live map[string]any) (after map[string]any, err error)

// asIs is change for callers that only compare: it includes changes the API would refuse.
func asIs(w wanted, live map[string]any) (map[string]any, error) { return changed(w, live), nil }

// differenceOf returns Ensure's change to one object.
func (r *Real) differenceOf(ctx context.Context, obj Object) (Difference, error) {
	return r.compare(ctx, obj, change)
}

func (r *Real) compare(ctx context.Context, obj Object, change changer) (Difference, error) {
	w, err := want(obj)
	if err != nil {
		return Difference{}, err
	}
	w, found, err := r.located(ctx, w)
	if err != nil {
		return Difference{}, err
	}
	if !found {
		return Difference{Change: Create}, nil
	}
	live, found, err := r.fields(ctx, w.ref)
	if err != nil {
		return Difference{}, err
	}
	if !found {
		return Difference{Change: Create}, nil
	}
	return difference(obj, w, live, change)
}

// difference returns the change that gives live the fields set in obj (w).
func difference(obj Object, w wanted, live map[string]any, change changer) (Difference, error) {
	after, err := change(w, live)
	if err != nil {
		return Difference{}, err
	}
	if after == nil {
		return Difference{Change: None}, nil
	}
	d := Difference{Change: Update}
	if _, secret := obj.(*corev1.Secret); !secret {
		d.Before, d.After = ownFields(live), ownFields(after)
	}
	return d, nil
}

func (r *Real) deletionOf(ctx context.Context, what ref) (Difference, error) {
	_, found, err := r.fields(ctx, what)
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
	for _, m := range []map[string]string{have, more} {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

func marksOf(n *corev1.Node) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": n.Labels, "annotations": n.Annotations},
		"spec":     map[string]any{"taints": n.Spec.Taints},
	}
}

func (r *Real) fields(ctx context.Context, what ref) (fields map[string]any, found bool, err error) {
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		var data []byte
		if data, found, err = c.read(ctx, what); err != nil || !found {
			return err
		}
		return errors.Wrapf(json.Unmarshal(data, &fields), "get %s: decode the answer", what)
	})
	return fields, found, err
}

// ownFields returns a copy without the fields the server manages.
func ownFields(fields map[string]any) map[string]any {
	fields = runtime.DeepCopyJSON(fields)
	delete(fields, "status")
	dropServerMetadata(fields)
	return fields
}
