// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives phases the Kubernetes API as intents (this object should exist) instead of requests. Start at the
// interface Cluster and its method Ensure. Real (New) sends requests, and Plan (NewPlan) records them for a dry run. kinds.go
// lists the kinds of objects it knows, and diff.go compares objects. docs/design/trusting-the-api.md says whose claims count.
package cluster

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any API object, of the kinds in kinds.go.
type Object = interface {
	runtime.Object
	metav1.Object
}

// Cluster is everything a phase may do with the API. Each method retries errors that can pass (conflict, 429, 5xx, connection
// lost) until its context ends, and never a 401 or 403. Errors name the object and the verb.
type Cluster interface {
	// Ready waits until the API server answers /readyz with 200. After the deadline, the error includes the last answer.
	Ready(ctx context.Context) error
	// EnsureAdmin gives the administrators' group its rights: it creates the binding kubeadm:cluster-admins, with
	// super-admin.conf if admin.conf isn't allowed to yet. Further calls do nothing. It's the only method to wait for a 403 to
	// pass: a server that's starting, or has just got the binding, needs a moment to apply it.
	EnsureAdmin(ctx context.Context) error
	// Ensure makes the API hold each object: it creates missing objects, updates an object that differs in a field set here, and
	// leaves the rest alone. The objects must not depend on each other: they're written in parallel. The function change in
	// diff.go lists the rules and the exceptions: an existing Deployment, for example, keeps its replicas. A difference in an
	// immutable field is an error.
	Ensure(ctx context.Context, objs ...Object) error
	// Precreate creates the missing objects and leaves the others as they are. It uses super-admin.conf, whose group needs no
	// RBAC, so it works on an API server that hasn't written its default roles yet.
	Precreate(ctx context.Context, objs ...Object) error
	Validator
	// Update reads obj, whose name and namespace are set, and calls change, which alters it in place. If change reports that it
	// did, Update writes the object back. If another client writes it in between, both steps are repeated, so no write is lost.
	// If the object doesn't exist, found is false and nothing is written.
	Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error)
	// EnsureAbsent deletes the object. A missing object isn't an error.
	EnsureAbsent(ctx context.Context, obj Object) error
	// Get fills obj, whose name and namespace are set. found reports whether the object exists.
	Get(ctx context.Context, obj Object) (found bool, err error)
	SecretStore
	// Pods lists the Pods of a namespace that match a label selector.
	Pods(ctx context.Context, namespace, labelSelector string) ([]corev1.Pod, error)
	Evictor
	// Nodes lists the Nodes, sorted by name.
	Nodes(ctx context.Context) ([]corev1.Node, error)
	// Read makes a GET request, and passes the answer, which may be large, to take as it arrives. It's for read-only data, such
	// as metrics, discovery, and lists of kinds no phase writes. take is called at most once.
	Read(ctx context.Context, q Query, take func(io.Reader) error) error
	// MarkNode waits for the Node and adds any missing labels, taints and annotations. It never removes any.
	MarkNode(ctx context.Context, name string, mark Mark) error
	Waiter
}

type SecretStore interface {
	// Secrets lists the Secrets of a namespace that match a field selector.
	Secrets(ctx context.Context, namespace, fieldSelector string) ([]corev1.Secret, error)
	// Rewrite makes the API server store a Secret again as it is, if it would encrypt it otherwise by now. A missing one isn't an error.
	Rewrite(ctx context.Context, namespace, name string) error
}

// Validator predicts the result of a write.
type Validator interface {
	// Compare returns what Ensure would change, without changing anything. It compares immutable fields like the others.
	Compare(ctx context.Context, obj Object) (Difference, error)
	// Validate asks the API whether it would accept the objects from Ensure, and writes nothing. It returns a verdict on each.
	Validate(ctx context.Context, objs ...Object) ([]Verdict, error)
}

// Waiter waits for kubelets and controllers, which act on their own.
type Waiter interface {
	Approver
	// AwaitReport waits until the Node is registered and its kubelet has reported after since, by its Lease or the heartbeat of its
	// Ready condition. All times come from the node's own clock. After the deadline, the error describes the last state seen.
	AwaitReport(ctx context.Context, node string, since time.Time) error
	// AwaitNode waits until the Node is registered and check, which also gets the Pods bound to it, returns nil. After the
	// deadline, it returns check's last error.
	AwaitNode(ctx context.Context, node string, check func(*corev1.Node, []corev1.Pod) error) error
	// AwaitPods waits until check, which gets the Pods of a namespace that match a label selector, returns nil. After the deadline, it
	// returns check's last error.
	AwaitPods(ctx context.Context, namespace, labelSelector string, check func([]corev1.Pod) error) error
	// AwaitObserved waits until the controller manager has looked at a DaemonSet since its last change.
	AwaitObserved(ctx context.Context, namespace, daemonSet string) error
}

// Mark holds MarkNode's additions to a Node.
type Mark struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}

// ConfigMapText returns the value of a ConfigMap's key; empty if either is missing.
func ConfigMapText(ctx context.Context, c Cluster, namespace, name, key string) (string, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if found, err := c.Get(ctx, cm); err != nil || !found {
		return "", err
	}
	return cm.Data[key], nil
}

// LacksKubeProxy reports whether the cluster has no DaemonSet kube-proxy, so that nothing reads the ConfigMap that may be left of it.
// It's false if that can't be seen.
func LacksKubeProxy(ctx context.Context, c Cluster) bool {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem}}
	found, err := c.Get(ctx, set)
	return err == nil && !found
}

// LabelControlPlane marks control planes' Nodes. Only clients that may change any Node can set it: the admission plugin
// NodeRestriction refuses it to kubelets.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// ControlPlanes maps names to control planes' Nodes. Claims about control planes count only from their own kubelets: a worker's
// kubelet can create a mirror Pod of itself in any namespace, with the labels, annotations and image of an API server or an etcd.
type ControlPlanes map[string]*corev1.Node

// ControlPlanesOf picks the Nodes with LabelControlPlane.
func ControlPlanesOf(nodes []corev1.Node) ControlPlanes {
	planes := ControlPlanes{}
	for i := range nodes {
		if _, marked := nodes[i].Labels[LabelControlPlane]; marked {
			planes[nodes[i].Name] = &nodes[i]
		}
	}
	return planes
}

// Count adds this host's Node even if somebody has removed its label: the host's files say that it's a control plane. No other
// Node can be known that way.
func (c ControlPlanes) Count(nodes []corev1.Node, own string) {
	for i := range nodes {
		if nodes[i].Name == own {
			c[own] = &nodes[i]
		}
	}
}

func (c ControlPlanes) Pods(pods []corev1.Pod) (own, others []corev1.Pod) {
	for _, pod := range pods {
		if c[pod.Spec.NodeName] != nil {
			own = append(own, pod)
		} else {
			others = append(others, pod)
		}
	}
	return own, others
}

// Has reports whether host is one of the addresses or names in a control plane's Node.
func (c ControlPlanes) Has(node, host string) bool {
	n := c[node]
	return n != nil && slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return SameHost(a.Address, host) })
}

// SameHost reports whether two texts are the same address, in any form, or the same name.
func SameHost(a, b string) bool {
	left, err := netip.ParseAddr(a)
	right, other := netip.ParseAddr(b)
	if err != nil || other != nil {
		return a == b && a != ""
	}
	return left.Unmap() == right.Unmap()
}
