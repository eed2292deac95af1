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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verb is the kind of an Action.
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
	Object     Object
	Difference *Difference // the intent's change; nil if the plan doesn't compare
}

// Plan is a Cluster that writes nothing: it records intents.
type Plan struct {
	record func(Action)
	live   Cluster
	now    *Real // see CompareWith
	unread error // of the first question that now didn't answer

	mu      sync.Mutex
	admin   bool
	objects map[string]Object // by ref.String(); nil for a deleted object
}

var _ Cluster = (*Plan)(nil)

// NewPlan returns a Cluster for a dry run. It passes each intent to record, in order. Reads see this run's writes first, then
// live, or the cluster the plan is compared with. Without either, they see an empty cluster, and nothing uses the network.
func NewPlan(record func(Action), live Cluster) *Plan {
	return &Plan{record: record, live: live, objects: map[string]Object{}}
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
	return p.write(VerbEnsure, objs, func(now *Real, obj Object) (Difference, error) { return now.compare(ctx, obj, true) })
}

func (p *Plan) Precreate(_ context.Context, objs ...Object) error {
	return p.write(VerbPrecreate, objs, nil)
}

func (p *Plan) EnsureAbsent(ctx context.Context, obj Object) error {
	return p.write(VerbDelete, []Object{obj}, func(now *Real, obj Object) (Difference, error) { return now.deletionOf(ctx, obj) })
}

func (p *Plan) Evict(_ context.Context, pod *corev1.Pod) error {
	return p.write(VerbEvict, []Object{pod}, nil)
}

// write records a verb's intents. Reads see copies of the objects from then on, or nothing if the verb removes them. ask finds an
// intent's change; nil if it isn't compared.
func (p *Plan) write(verb Verb, objs []Object, ask func(now *Real, obj Object) (Difference, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, obj := range objs {
		r, err := refOf(obj)
		if err != nil {
			return err
		}
		action := Action{Verb: verb, Kind: r.kind.name, Namespace: r.namespace, Name: r.name}
		p.objects[r.String()] = nil
		if verb == VerbEnsure || verb == VerbPrecreate {
			written := copyOf(obj)
			written.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(r.kind.apiVersion, r.kind.name))
			p.objects[r.String()], action.Object = written, redact(copyOf(written))
		}
		if ask != nil {
			action.Difference = p.compare(func(now *Real) (Difference, error) { return ask(now, obj) })
		}
		p.record(action)
	}
	return nil
}

// Update also changes objects written by earlier steps of the plan.
func (p *Plan) Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error) {
	if found, err = p.Get(ctx, obj); err != nil || !found {
		return found, err
	}
	changed, err := change()
	if err != nil || !changed {
		return true, err
	}
	return true, p.Ensure(ctx, obj)
}

// written returns this run's object at r, nil if the run has deleted it. known is false if the run hasn't changed it.
func (p *Plan) written(r ref) (obj Object, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj, known = p.objects[r.String()]
	return obj, known
}

func (p *Plan) Get(ctx context.Context, obj Object) (found bool, err error) {
	r, err := refOf(obj)
	if err != nil {
		return false, err
	}
	written, known := p.written(r)
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
	w, err := want(obj)
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Change: Create}
	written, known := p.written(w.ref)
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
	return difference(obj, w, live.fields, false)
}

func (p *Plan) Pods(ctx context.Context, namespace, labelSelector string) (pods []corev1.Pod, err error) {
	err = p.reading(func(c Cluster) (err error) { pods, err = c.Pods(ctx, namespace, labelSelector); return err })
	return pods, err
}

func (p *Plan) Nodes(ctx context.Context) (nodes []corev1.Node, err error) {
	err = p.reading(func(c Cluster) (err error) { nodes, err = c.Nodes(ctx); return err })
	return nodes, err
}

// PodsOn leaves out Pods the plan has evicted: they're gone at once. A plan makes no Pods.
func (p *Plan) PodsOn(ctx context.Context, node string) (pods []corev1.Pod, err error) {
	err = p.reading(func(c Cluster) (err error) { pods, err = c.PodsOn(ctx, node); return err })
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return p.changes("Pod", &pod) }), err
}

func (p *Plan) changes(name string, obj metav1.Object) bool {
	_, known := p.written(ref{kind{name: name}, obj.GetNamespace(), obj.GetName()})
	return known
}

// Read sees none of this run's writes.
func (p *Plan) Read(ctx context.Context, q Query, take func(io.Reader) error) error {
	asked := false
	err := p.reading(func(c Cluster) error { asked = true; return c.Read(ctx, q, take) })
	if err == nil && (!asked || p.unread != nil) {
		return errors.Errorf("get %s: a plan does not ask the cluster", q.Path)
	}
	return err
}

func (p *Plan) Secrets(ctx context.Context, namespace, fieldSelector string) (secrets []corev1.Secret, err error) {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return nil, errors.Wrapf(err, "list Secrets of %s", namespace)
	}
	err = p.reading(func(c Cluster) (err error) { secrets, err = c.Secrets(ctx, namespace, fieldSelector); return err })
	secrets = slices.DeleteFunc(secrets, func(s corev1.Secret) bool { return p.changes("Secret", &s) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(p.objects)) {
		s, ok := p.objects[key].(*corev1.Secret)
		if ok && s.Namespace == namespace && selector.Matches(fields.Set{"metadata.name": s.Name, "type": string(s.Type)}) {
			secrets = append(secrets, *s.DeepCopy())
		}
	}
	return secrets, err
}

// Rewrite isn't known in advance: a plan doesn't see how the API server stores a Secret.
func (p *Plan) Rewrite(context.Context, string, string) error {
	return errors.New("a plan does not rewrite Secrets")
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

func (p *Plan) AwaitPods(context.Context, string, string, func([]corev1.Pod) error) error { return nil }

func (p *Plan) AwaitObserved(context.Context, string, string) error { return nil }

// redacted replaces a Secret's values in a plan. It doesn't show their length.
const redacted = "<redacted>"

// redact removes the values from a copy of a Secret. The placeholders are in StringData, where people can read them.
func redact(obj Object) Object {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return obj
	}
	s.StringData = map[string]string{}
	for key := range s.Data {
		s.StringData[key] = redacted
	}
	s.Data = nil
	return s
}
