// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster is the Kubernetes API as phases use it: they state what
// should be there. New returns the real API, NewPlan one that only records.
package cluster

import (
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any object of the API, of the kinds in kinds.go.
type Object interface {
	runtime.Object
	metav1.Object
}

// Cluster is everything that a phase may do with the API. Each method retries
// errors that can pass (conflict, 429, 5xx, connection lost) until its context
// ends, and never a 401 or 403. Errors name the object and the verb.
type Cluster interface {
	// Ready waits until the API server answers /readyz with 200. The error
	// after the deadline carries the last answer.
	Ready(ctx context.Context) error
	// EnsureAdmin makes sure that the administrators' group has its rights: it
	// creates the binding kubeadm:cluster-admins, with super-admin.conf if
	// admin.conf is not allowed to yet. Further calls do nothing. It is the one
	// method that waits for a 403 to pass: a server that is starting, or has
	// just got the binding, needs a moment to apply it.
	EnsureAdmin(ctx context.Context) error
	// Ensure makes the API hold each object: creates what is missing, updates
	// what differs in a field that is set here, leaves the rest alone. The
	// objects must not depend on each other; they are written side by side.
	// The function change in diff.go lists what counts as different, and the
	// exceptions: an existing Deployment, for example, keeps its replicas. An
	// immutable field that differs is an error.
	Ensure(ctx context.Context, objs ...Object) error
	// Precreate creates those of the objects that are missing and leaves the
	// others as they are. It uses super-admin.conf, whose group needs no RBAC, so
	// it works on an API server that has not written its default roles yet.
	Precreate(ctx context.Context, objs ...Object) error
	Judge
	// Update reads obj, whose name and namespace are set, and writes it back if
	// change, which alters it in place, reports that it did. If another client
	// writes the object in between, both are done again, so no write is lost.
	// found is false if there is no such object: then nothing is written.
	Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error)
	// EnsureAbsent deletes the object. It is not an error if it is missing.
	EnsureAbsent(ctx context.Context, obj Object) error
	// Get fills obj, whose name and namespace are set. found reports whether
	// the object exists.
	Get(ctx context.Context, obj Object) (found bool, err error)
	// Secrets lists the Secrets of a namespace that match a field selector.
	Secrets(ctx context.Context, namespace, fieldSelector string) ([]corev1.Secret, error)
	// Pods lists the Pods of a namespace that match a label selector.
	Pods(ctx context.Context, namespace, labelSelector string) ([]corev1.Pod, error)
	Evictor
	// Nodes lists the Nodes, sorted by name.
	Nodes(ctx context.Context) ([]corev1.Node, error)
	// Read makes a GET request, and passes the answer to take while it arrives: it
	// may be large. It is for what is only looked at, such as lists of kinds that
	// no phase writes, discovery and metrics. take is called at most once.
	Read(ctx context.Context, q Query, take func(io.Reader) error) error
	// MarkNode waits for the Node and adds the labels, taints and annotations
	// that it lacks. It never removes any.
	MarkNode(ctx context.Context, name string, mark Mark) error
	Waiter
}

// Judge says what a write would come to.
type Judge interface {
	// Compare returns what Ensure would change, and changes nothing. Immutable
	// fields are compared like the others.
	Compare(ctx context.Context, obj Object) (Difference, error)
	// Validate asks the API whether it would take the objects from Ensure, and
	// writes nothing. It returns a verdict on each.
	Validate(ctx context.Context, objs ...Object) ([]Verdict, error)
}

// Waiter waits for what a node does.
type Waiter interface {
	// AwaitReport waits until the Node is registered and its kubelet has
	// reported after since: it has renewed its Lease, or the heartbeat of its
	// Ready condition, both with the time of the node's own clock. The error
	// after the deadline says what was seen last.
	AwaitReport(ctx context.Context, node string, since time.Time) error
	// AwaitNode waits until the Node is registered and check, which also gets
	// the Pods that are bound to it, returns nil. The error after the deadline
	// is the last one of check.
	AwaitNode(ctx context.Context, node string, check func(*corev1.Node, []corev1.Pod) error) error
}

// Mark is what MarkNode adds to a Node.
type Mark struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}
