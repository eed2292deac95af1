// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// MarkNode overwrites labels and annotations with other values, and taints of the same key and effect with another value.
func (r *Real) MarkNode(ctx context.Context, name string, mark Mark) error {
	return r.wait(ctx, policy(pollDelay), func(ctx context.Context, c *conn) error {
		live, what, err := c.node(ctx, name)
		if err != nil {
			return err
		}
		patch := markPatch(live, mark)
		if patch == nil {
			return nil
		}
		err = c.send(ctx, c.object(http.MethodPatch, what), string(types.MergePatchType), patch)
		return errors.Wrapf(err, "patch %s", what)
	})
}

func NewNode(name string) *corev1.Node {
	n := &corev1.Node{}
	n.APIVersion, n.Kind, n.Name = "v1", "Node", name
	return n
}

// node returns a Node, which must be registered.
func (c *conn) node(ctx context.Context, name string) (node *corev1.Node, what ref, err error) {
	node = NewNode(name)
	if what, err = refOf(node); err != nil {
		return nil, what, err
	}
	found, err := c.fill(ctx, node)
	if err == nil && !found {
		err = notYetError{errors.Errorf("%s is not registered: its kubelet does that once it reaches the API server; `journalctl -u kubelet` shows what keeps it", what)}
	}
	return node, what, err
}

// AwaitNode also works with the credentials of the node's kubelet.
func (r *Real) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	return r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error {
		var pods corev1.PodList
		node, _, err := c.node(ctx, name)
		if err == nil {
			err = c.list(ctx, podsOn(name), &pods)
		}
		if err != nil {
			return err
		}
		if err := check(node, pods.Items); err != nil {
			return notYetError{err}
		}
		return nil
	})
}

func (r *Real) AwaitPods(ctx context.Context, namespace, labelSelector string, check func([]corev1.Pod) error) error {
	return r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error {
		var pods corev1.PodList
		if err := c.list(ctx, selection{"Pod", namespace, byLabels, labelSelector}, &pods); err != nil {
			return err
		}
		if err := check(pods.Items); err != nil {
			return notYetError{err}
		}
		return nil
	})
}

func (r *Real) AwaitObserved(ctx context.Context, namespace, daemonSet string) error {
	return r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemonSet}}
		found, err := c.fill(ctx, d)
		switch {
		case err != nil:
			return err
		case !found:
			return notYetError{errors.Errorf("there is no DaemonSet %s/%s", namespace, daemonSet)}
		case d.Status.ObservedGeneration < d.Generation:
			return notYetError{errors.Errorf("the controller manager hasn't looked at DaemonSet %s/%s since its last change (it has seen generation %d of %d); "+
				"`slipway diagnose` on its node finds out why", namespace, daemonSet, d.Status.ObservedGeneration, d.Generation)}
		}
		return nil
	})
}

func (r *Real) AwaitReport(ctx context.Context, name string, since time.Time) error {
	return r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error { return c.reported(ctx, name, since) })
}

// reportDelay bounds the wait between two looks for a kubelet's report, which comes within a second of its start, then every 10 s.
const reportDelay = 200 * time.Millisecond

// reported returns an error if a node's kubelet hasn't reported after since.
func (c *conn) reported(ctx context.Context, name string, since time.Time) error {
	node, what, err := c.node(ctx, name)
	if err != nil {
		return err
	}
	last, err := renewedAt(ctx, c.fill, corev1.NamespaceNodeLease, name)
	if err != nil {
		return err
	}
	if beat := Heartbeat(node); beat.After(last) {
		last = beat
	}
	if last.After(since) {
		return nil
	}
	return notYetError{errors.Errorf("the kubelet of %s has not reported since %s (last report: %s); `journalctl -u kubelet` shows what keeps it",
		what, shownTime(since), shownTime(last))}
}

// RenewedAt returns when a Lease was last renewed, by its holder's clock; zero without a Lease.
func RenewedAt(ctx context.Context, c Cluster, namespace, name string) (time.Time, error) {
	return renewedAt(ctx, c.Get, namespace, name)
}

func renewedAt(ctx context.Context, get func(context.Context, Object) (bool, error), namespace, name string) (time.Time, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	found, err := get(ctx, lease)
	if err != nil || !found || lease.Spec.RenewTime == nil {
		return time.Time{}, err
	}
	return lease.Spec.RenewTime.Time, nil
}

// Heartbeat returns when the kubelet last wrote the node's condition Ready, by its own clock; zero if it never did.
func Heartbeat(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

func shownTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

// markPatch returns a JSON merge patch (RFC 7396) with the parts of mark missing in live, or nil. It insists on live's resource
// version only where it replaces a list: the kubelet writes its Node all the time.
func markPatch(live *corev1.Node, mark Mark) map[string]any {
	meta, patch := map[string]any{}, map[string]any{}
	if labels := missing(live.Labels, mark.Labels); len(labels) > 0 {
		meta["labels"] = labels
	}
	if annotations := missing(live.Annotations, mark.Annotations); len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if taints := withTaints(live.Spec.Taints, mark.Taints); !slices.Equal(taints, live.Spec.Taints) {
		patch["spec"] = map[string]any{"taints": taints}
		meta["resourceVersion"] = live.ResourceVersion
	}
	if len(meta) == 0 {
		return nil
	}
	patch["metadata"] = meta
	return patch
}

func missing(have, wanted map[string]string) map[string]string {
	lacking := maps.Clone(wanted)
	maps.DeleteFunc(lacking, func(key, value string) bool {
		had, ok := have[key]
		return ok && had == value
	})
	return lacking
}

// withTaints adds taints to a Node's. A Node has one taint for each pair of key and effect.
func withTaints(have, wanted []corev1.Taint) []corev1.Taint {
	taints := slices.Clone(have)
	for _, taint := range wanted {
		i := slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		switch {
		case i < 0:
			taints = append(taints, taint)
		case taints[i].Value != taint.Value:
			taints[i].Value = taint.Value
		}
	}
	return taints
}

type Evictor interface {
	// PodsOn lists the Pods bound to a node, in all namespaces.
	PodsOn(ctx context.Context, node string) ([]corev1.Pod, error)
	// Evict asks the API to end a Pod, without waiting for its end. The API respects disruption budgets: if it can't evict the
	// Pod now, the error is a *BlockedError. A Pod that's gone isn't an error.
	Evict(ctx context.Context, pod *corev1.Pod) error
}

// BlockedError says why the API doesn't evict a Pod now. It may do so later.
type BlockedError struct {
	// Pod is NAMESPACE/NAME. Reason is the API's message, which names the disruption budgets in the way.
	Pod, Reason string
}

func (e *BlockedError) Error() string { return "Pod " + e.Pod + " cannot be evicted now: " + e.Reason }

// Evict leaves alone another Pod that has taken the name meanwhile.
func (r *Real) Evict(ctx context.Context, pod *corev1.Pod) error {
	what, err := refOf(pod)
	if err != nil {
		return err
	}
	eviction := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: metav1.NewPreconditionDeleteOptions(string(pod.UID)),
	}
	return r.call(ctx, func(ctx context.Context, c *conn) error {
		err := c.send(ctx, c.object(http.MethodPost, what).SubResource("eviction"), runtime.ContentTypeJSON, eviction)
		switch {
		case err == nil, isNotFound(err):
			return nil
		case blocked(err):
			return &BlockedError{Pod: what.namespace + "/" + what.name, Reason: reasonOf(err)}
		}
		return errors.Wrapf(err, "evict %s", what)
	})
}

// blocked recognizes refusals that may end when the cluster's state changes: a disruption budget (429; 500 if several budgets
// select the Pod), a replaced Pod (409), a namespace being deleted.
func blocked(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// reasonOf returns the API's words about the budgets, or else its message.
func reasonOf(err error) string {
	status, _ := statusOf(err)
	if status.Details == nil {
		return status.Message
	}
	var said []string
	for _, cause := range status.Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			said = append(said, cause.Message)
		}
	}
	if len(said) == 0 {
		return status.Message
	}
	return strings.Join(said, "; ")
}

// IsMirror reports whether a Pod is the API's copy of a kubelet's static Pod, which runs without the cluster.
func IsMirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// PodEnded reports whether a Pod's containers have ended for good.
func PodEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// PodReady reports whether a Pod has the condition Ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
