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

// What an intent would change in the cluster as it is now.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
	None   = "none"
)

// Difference is what an intent would change.
type Difference struct {
	// Change is Create, Update, Delete or None. It is empty if Err says why
	// that is not known.
	Change string
	Err    error
	// Before and After are the fields of an object that is updated, without
	// those that the server keeps for itself; nil for a Secret.
	Before, After map[string]any
}

// CompareWith makes p compare each intent with the cluster now. After the first
// question without an answer it asks no more.
func (p *Plan) CompareWith(now *Real) { p.now = now }

// compare returns the answer of ask. p.mu is held.
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

// reading asks the cluster for what this run has not written: the live one, or
// the one to compare with. If that does not answer, it counts as empty, and the
// next comparison reports the error. p.mu is held.
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

// Compare implements Cluster.
func (r *Real) Compare(ctx context.Context, obj Object) (Difference, error) {
	return r.compare(ctx, obj, asIs)
}

// changer is change, or asIs.
type changer func(w wanted, live map[string]any) (after map[string]any, err error)

// asIs is change for a caller that only compares: it includes what the API
// would refuse to change.
func asIs(w wanted, live map[string]any) (map[string]any, error) { return changed(w, live), nil }

// differenceOf returns what Ensure would do to one object.
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

// difference is what change would do to live so that it has what obj sets (w).
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

// deletionOf returns what EnsureAbsent would do.
func (r *Real) deletionOf(ctx context.Context, what ref) (Difference, error) {
	_, found, err := r.fields(ctx, what)
	if err != nil || !found {
		return Difference{Change: None}, err
	}
	return Difference{Change: Delete}, nil
}

// markingOf returns what MarkNode would do. A Node that is not registered yet
// will be by then.
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

// fields reads an object, within one budget.
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

// ownFields is a copy without what the server keeps for itself.
func ownFields(fields map[string]any) map[string]any {
	fields = runtime.DeepCopyJSON(fields)
	delete(fields, "status")
	dropServerMetadata(fields)
	return fields
}
