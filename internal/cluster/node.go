// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// MarkNode overwrites labels and annotations with other values, and taints of the same key and effect with another value.
func (r *Real) MarkNode(ctx context.Context, name string, mark Mark) error {
	node, err := refOf(NewNode(name))
	if err != nil {
		return err
	}
	c, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := r.orTimeout(ctx)
	defer cancel()
	return c.advise(policy(pollDelay).Do(ctx, func(ctx context.Context) error {
		return c.mark(ctx, node, mark)
	}))
}

// NewNode returns a Node to ask the API for.
func NewNode(name string) *corev1.Node {
	n := &corev1.Node{}
	n.APIVersion, n.Kind, n.Name = "v1", "Node", name
	return n
}

func (c *conn) mark(ctx context.Context, node ref, mark Mark) error {
	live := NewNode(node.name)
	found, err := c.fill(ctx, live)
	if err != nil {
		return err
	}
	if !found {
		return notRegistered(node)
	}
	patch := markPatch(live, mark)
	if patch == nil {
		return nil
	}
	err = c.send(ctx, c.object(http.MethodPatch, node), string(types.MergePatchType), patch)
	return errors.Wrapf(err, "patch %s", node)
}

func notRegistered(node ref) error {
	return notYetError{errors.Errorf("%s is not registered: its kubelet does that once it reaches the API server; `journalctl -u kubelet` shows what keeps it", node)}
}

func (r *Real) AwaitReport(ctx context.Context, name string, since time.Time) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := r.orTimeout(ctx)
	defer cancel()
	confirm := c.confirmForbidden()
	return c.advise(policy(reportDelay).Do(ctx, func(ctx context.Context) error {
		return confirm(ctx, c.reported(ctx, name, since))
	}))
}

// AwaitNode also works with the credentials of the node's kubelet.
func (r *Real) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	pod, err := kindOf("v1", "Pod")
	if err != nil {
		return err
	}
	ctx, cancel := r.orTimeout(ctx)
	defer cancel()
	confirm := c.confirmForbidden()
	return c.advise(policy(reportDelay).Do(ctx, func(ctx context.Context) error {
		node, pods, err := c.nodeWithPods(ctx, name, pod)
		if err := confirm(ctx, err); err != nil {
			return err
		}
		if err := check(node, pods); err != nil {
			return notYetError{err}
		}
		return nil
	}))
}

// nodeWithPods returns a Node, which must be registered, and its Pods.
func (c *conn) nodeWithPods(ctx context.Context, name string, pod kind) (*corev1.Node, []corev1.Pod, error) {
	node := NewNode(name)
	what, _ := refOf(node)
	found, err := c.fill(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, notRegistered(what)
	}
	data, err := c.do(ctx, c.at(http.MethodGet, pod, "").Param("fieldSelector", "spec.nodeName="+name))
	if err != nil {
		return nil, nil, errors.Wrapf(err, "list the Pods of %s", what)
	}
	var pods corev1.PodList
	err = json.Unmarshal(data, &pods)
	return node, pods.Items, errors.Wrapf(err, "list the Pods of %s: decode the answer", what)
}

// reportDelay bounds the wait between two looks for a kubelet's report, which comes within a second of its start, and then every
// ten seconds.
const reportDelay = 200 * time.Millisecond

// reported returns an error if a node's kubelet hasn't reported after since.
func (c *conn) reported(ctx context.Context, name string, since time.Time) error {
	node := NewNode(name)
	found, err := c.fill(ctx, node)
	if err != nil {
		return err
	}
	what, _ := refOf(node) // fill has checked it
	if !found {
		return notRegistered(what)
	}
	last := heartbeat(node)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	found, err = c.fill(ctx, lease)
	if err != nil {
		return err
	}
	if found && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(last) {
		last = lease.Spec.RenewTime.Time
	}
	if last.After(since) {
		return nil
	}
	return notYetError{errors.Errorf("the kubelet of %s has not reported since %s (last report: %s); `journalctl -u kubelet` shows what keeps it",
		what, since.Format(time.RFC3339), shownTime(last))}
}

// heartbeat returns the time of the kubelet's last report on the node.
func heartbeat(node *corev1.Node) time.Time {
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
	return t.Local().Format(time.RFC3339)
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
