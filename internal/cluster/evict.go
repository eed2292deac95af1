// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

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
