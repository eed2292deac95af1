// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type Verb string

// The verbs, as a plan shows them.
const (
	VerbWait   Verb = "wait"   // until the API server is ready
	VerbEnsure Verb = "ensure" // create, or update where it differs
	VerbDelete Verb = "delete" // if it exists
	VerbMark   Verb = "mark"   // add the object's labels, annotations, taints
	VerbEvict  Verb = "evict"  // end a Pod, as disruption budgets allow
	// VerbPrecreate creates objects the cluster would make itself a moment later, see Cluster.Precreate.
	VerbPrecreate Verb = "pre-create"
)

// Action is one intent of a dry run.
type Action struct {
	Verb            Verb
	Kind            string // empty for VerbWait
	Namespace, Name string
	// Object is the object to write, without secrets; nil for VerbWait and VerbDelete. The receiver may change it.
	Object Object
	// Difference is the intent's change; nil if the plan doesn't compare.
	Difference *Difference
}

// Plan is a Cluster that writes nothing: it records intents.
type Plan struct {
	record func(Action)
	live   Cluster
	now    *Real // see CompareWith
	unread error // of the first question that now didn't answer

	mu      sync.Mutex
	admin   bool
	objects map[planKey]Object // nil for a deleted object
	order   []planKey
}

type planKey struct{ kind, namespace, name string }

var _ Cluster = (*Plan)(nil)

// NewPlan returns a Cluster for a dry run. It passes each intent to record, in order. Reads see this run's writes first, then
// live, or the cluster the plan is compared with. Without either, they see an empty cluster, and nothing uses the network.
func NewPlan(record func(Action), live Cluster) *Plan {
	return &Plan{record: record, live: live, objects: map[planKey]Object{}}
}

func (p *Plan) Ready(context.Context) error {
	p.record(Action{Verb: VerbWait, Name: "/readyz"})
	return nil
}

func (p *Plan) EnsureAdmin(ctx context.Context) error {
	p.mu.Lock()
	done := p.admin
	p.admin = true
	p.mu.Unlock()
	if done {
		return nil
	}
	return p.Ensure(ctx, adminBinding())
}

// Ensure records the objects in the order they're listed.
func (p *Plan) Ensure(ctx context.Context, objs ...Object) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, obj := range objs {
		r, written, err := p.write(obj)
		if err != nil {
			return err
		}
		p.record(Action{Verb: VerbEnsure, Kind: r.kind.name, Namespace: r.namespace, Name: r.name, Object: redact(copyOf(written)),
			Difference: p.compare(func(now *Real) (Difference, error) { return now.differenceOf(ctx, written) })})
	}
	return nil
}

// write makes reads see a copy of obj, with its kind.
func (p *Plan) write(obj Object) (ref, Object, error) {
	r, err := refOf(obj)
	if err != nil {
		return ref{}, nil, err
	}
	written := copyOf(obj)
	written.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(r.kind.apiVersion, r.kind.name))
	p.put(r, written)
	return r, written, nil
}

func (p *Plan) put(r ref, obj Object) {
	key := planKey{r.kind.name, r.namespace, r.name}
	if _, known := p.objects[key]; !known {
		p.order = append(p.order, key)
	}
	p.objects[key] = obj
}

func (p *Plan) Precreate(_ context.Context, objs ...Object) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, obj := range objs {
		r, written, err := p.write(obj)
		if err != nil {
			return err
		}
		p.record(Action{Verb: VerbPrecreate, Kind: r.kind.name, Namespace: r.namespace, Name: r.name, Object: redact(copyOf(written))})
	}
	return nil
}

func (p *Plan) EnsureAbsent(ctx context.Context, obj Object) error {
	r, err := refOf(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(r, nil)
	p.record(Action{Verb: VerbDelete, Kind: r.kind.name, Namespace: r.namespace, Name: r.name,
		Difference: p.compare(func(now *Real) (Difference, error) { return now.deletionOf(ctx, r) })})
	return nil
}

func (p *Plan) Get(ctx context.Context, obj Object) (found bool, err error) {
	r, err := refOf(obj)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	written, known := p.objects[planKey{r.kind.name, r.namespace, r.name}]
	switch {
	case !known:
		err = p.reading(func(c Cluster) (err error) { found, err = c.Get(ctx, obj); return err })
		return found, err
	case written == nil:
		return false, nil
	}
	from, to := reflect.ValueOf(copyOf(written)), reflect.ValueOf(obj)
	if from.Type() != to.Type() {
		return false, errors.Errorf("get %s: it was written as a %T and is read as a %T", r, written, obj)
	}
	to.Elem().Set(from.Elem())
	return true, nil
}

func (p *Plan) Compare(ctx context.Context, obj Object) (Difference, error) {
	w, err := want(copyOf(obj))
	if err != nil {
		return Difference{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := Difference{Change: Create}
	written, known := p.objects[planKey{w.kind.name, w.namespace, w.name}]
	switch {
	case !known:
		err = p.reading(func(c Cluster) error {
			there, err := c.Compare(ctx, obj)
			if err == nil {
				d = there
			}
			return err
		})
		return d, err
	case written == nil:
		return d, nil
	}
	live, err := want(written)
	if err != nil {
		return d, err
	}
	return difference(obj, w, live.fields, asIs)
}

func (p *Plan) Pods(ctx context.Context, namespace, labelSelector string) (pods []corev1.Pod, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.reading(func(c Cluster) (err error) { pods, err = c.Pods(ctx, namespace, labelSelector); return err })
	return pods, err
}

func (p *Plan) Nodes(ctx context.Context) (nodes []corev1.Node, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.reading(func(c Cluster) (err error) { nodes, err = c.Nodes(ctx); return err })
	return nodes, err
}

// Read sees none of this run's writes.
func (p *Plan) Read(ctx context.Context, q Query, take func(io.Reader) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := false
	err := p.reading(func(c Cluster) error { asked = true; return c.Read(ctx, q, take) })
	if err == nil && (!asked || p.unread != nil) {
		return errors.Errorf("get %s: a plan does not ask the cluster", q.Path)
	}
	return err
}

func (p *Plan) Secrets(ctx context.Context, namespace, fieldSelector string) ([]corev1.Secret, error) {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return nil, errors.Wrapf(err, "list Secrets of %s", namespace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var secrets []corev1.Secret
	err = p.reading(func(c Cluster) (err error) { secrets, err = c.Secrets(ctx, namespace, fieldSelector); return err })
	if err != nil {
		return nil, err
	}
	secrets = slices.DeleteFunc(secrets, func(s corev1.Secret) bool {
		_, known := p.objects[planKey{"Secret", s.Namespace, s.Name}]
		return known
	})
	for _, key := range p.order {
		s, ok := p.objects[key].(*corev1.Secret)
		if ok && s.Namespace == namespace && selector.Matches(fields.Set{"metadata.name": s.Name, "type": string(s.Type)}) {
			secrets = append(secrets, *s.DeepCopy())
		}
	}
	return secrets, nil
}

func (p *Plan) MarkNode(ctx context.Context, name string, mark Mark) error {
	node := NewNode(name)
	node.Labels, node.Annotations = maps.Clone(mark.Labels), maps.Clone(mark.Annotations)
	node.Spec.Taints = slices.Clone(mark.Taints)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(Action{Verb: VerbMark, Kind: "Node", Name: name, Object: node,
		Difference: p.compare(func(now *Real) (Difference, error) { return now.markingOf(ctx, name, mark) })})
	return nil
}

// AwaitReport doesn't wait: in a plan, no kubelet runs.
func (p *Plan) AwaitReport(context.Context, string, time.Time) error { return nil }

func (p *Plan) AwaitNode(context.Context, string, func(*corev1.Node, []corev1.Pod) error) error {
	return nil
}
