// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster is what a phase may do to the Kubernetes API, said as
// intents. New returns the real thing, NewPlan one that only records.
package cluster

import (
	"context"
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

// Cluster is everything that a phase may ask of or do to the API. Each method
// retries what can pass (conflict, 429, 5xx, connection lost) until its
// context ends, and never a 401 or 403. Errors name the object and the verb.
type Cluster interface {
	// Ready waits until the API server answers /readyz with 200. The error
	// after the deadline carries the last answer.
	Ready(ctx context.Context) error
	// EnsureAdmin makes sure that the administrators' group may administrate:
	// the binding kubeadm:cluster-admins is created with super-admin.conf
	// where admin.conf is not allowed to yet. It does so once in its life. It
	// is the one method that waits for a 403 to pass: a server that is just
	// starting, or has just got the binding, needs a moment to heed it.
	EnsureAdmin(ctx context.Context) error
	// Ensure makes the API hold each object: creates what is missing, updates
	// what differs in a field that is set here, leaves the rest alone. The
	// objects must not depend on each other; they are written side by side.
	// What counts as different, and the exceptions, are told at change in
	// diff.go: an existing Deployment, for one, keeps its replicas. An
	// immutable field that differs is an error.
	Ensure(ctx context.Context, objs ...Object) error
	// Compare tells what Ensure would change, and changes nothing. What is
	// immutable is compared like the rest.
	Compare(ctx context.Context, obj Object) (Difference, error)
	// Update reads obj, whose name and namespace are set, and writes it back if
	// change, which alters it in place, reports that it did. When somebody else
	// writes the object in between, both are done again, so no write is lost.
	// found is false where there is no such object: then nothing is written.
	Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error)
	// EnsureAbsent deletes the object; a missing one is no error.
	EnsureAbsent(ctx context.Context, obj Object) error
	// Get fills obj, whose name and namespace are set. found is false where
	// there is no such object.
	Get(ctx context.Context, obj Object) (found bool, err error)
	// Secrets lists the Secrets of a namespace that match a field selector.
	Secrets(ctx context.Context, namespace, fieldSelector string) ([]corev1.Secret, error)
	// Pods lists the Pods of a namespace that match a label selector.
	Pods(ctx context.Context, namespace, labelSelector string) ([]corev1.Pod, error)
	// MarkNode waits for the Node and adds labels, taints and annotations that
	// are not there yet. It never removes any.
	MarkNode(ctx context.Context, name string, mark Mark) error
	// AwaitReport waits until the Node is registered and its kubelet has
	// reported after since: has renewed its Lease or the heartbeat of its Ready
	// condition, which both carry the time of the node's own clock. The error
	// after the deadline says what was seen last.
	AwaitReport(ctx context.Context, node string, since time.Time) error
}

// Mark is what MarkNode adds to a Node.
type Mark struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}
