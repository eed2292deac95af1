// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/step"
)

// cordonedHere annotates a Node that a run has cordoned with the version of the upgrade, so the run that finishes it uncordons it.
const cordonedHere = "slipway/cordoned-for-upgrade"

func unlessDrain(env *step.Env) string {
	if env.Config.Upgrade.Drain == nil {
		return "--drain is not given"
	}
	return ""
}

// runDrain refuses before it changes anything, and looks again once the node is cordoned: Pods may have arrived in between.
func runDrain(ctx context.Context, env *step.Env) error {
	if _, err := podsToEvict(ctx, env); err != nil {
		return err
	}
	if err := cordon(ctx, env); err != nil {
		return err
	}
	pods, err := podsToEvict(ctx, env)
	if err != nil {
		return fault.WithRemedy(err, strings.TrimPrefix(fault.Remedy(err)+"; the node stays cordoned until you run this again, or `slipway upgrade node phase uncordon`", "; "))
	}
	if len(pods) == 0 {
		env.UI.Printf("This node has no Pods to evict")
		return nil
	}
	env.UI.Printf("Evicting %s", strings.Join(podNames(pods), ", "))
	return evict(ctx, env, pods)
}

// isCordonedHere reports whether a run has cordoned the node for this upgrade. Since then, somebody else may have uncordoned it and
// cordoned it for another reason, which leaves the annotation.
func isCordonedHere(env *step.Env, node *corev1.Node) bool {
	version, noted := node.Annotations[cordonedHere]
	return noted && version == env.Config.Upgrade.Version && node.Spec.Unschedulable && !slices.ContainsFunc(node.ManagedFields, cordonedElsewhere)
}

// cordonedElsewhere reports whether a manager of a Node that isn't Slipway has cordoned it.
func cordonedElsewhere(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec map[string]any `json:"f:spec"`
	}
	if entry.Manager == "slipway" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, found := fields.Spec["f:unschedulable"]
	return found
}

// cordon keeps new Pods away. If the node was cordoned before, it stays so after the upgrade.
func cordon(ctx context.Context, env *step.Env) error {
	node := cluster.NewNode(env.Config.Name)
	already := false
	found, err := env.Cluster.Update(ctx, node, func() (bool, error) {
		if already = node.Spec.Unschedulable; already {
			return false, nil
		}
		node.Spec.Unschedulable = true
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, cordonedHere, env.Config.Upgrade.Version)
		return true, nil
	})
	switch {
	case err != nil:
		return err
	case !found:
		return fault.New("the cluster has no Node "+env.Config.Name, "compare the name with `kubectl get nodes`; if the Node was deleted, restart the kubelet, which registers it")
	case already && !isCordonedHere(env, node):
		env.UI.Printf("Node %s was cordoned before, and stays so after the upgrade", node.Name)
	default:
		env.UI.Printf("Node %s is cordoned", node.Name)
	}
	return nil
}

// runUncordon leaves a node cordoned if the phase's own command has drained it: the operator isn't done with it yet. If somebody has
// uncordoned it meanwhile, the annotation goes.
func runUncordon(ctx context.Context, env *step.Env) error {
	node := cluster.NewNode(env.Config.Name)
	ours, cordoned := false, false
	_, err := env.Cluster.Update(ctx, node, func() (bool, error) {
		cordoned, ours = node.Spec.Unschedulable, isCordonedHere(env, node)
		_, noted := node.Annotations[cordonedHere]
		if !noted || cordoned && (!ours || env.Config.Upgrade.Drain == nil) {
			return false, nil
		}
		delete(node.Annotations, cordonedHere)
		node.Spec.Unschedulable = false
		return true, nil
	})
	switch {
	case err != nil || !cordoned:
		return err
	case !ours && env.Config.Upgrade.Drain != nil:
		env.UI.Nextf("Node %s was not cordoned by Slipway for this upgrade, so it stays cordoned; `kubectl uncordon %s` makes it ready for Pods", node.Name, node.Name)
	case !ours:
	case env.Config.Upgrade.Drain == nil:
		env.UI.Nextf("Node %s is still cordoned; when it is ready for Pods, run `slipway upgrade node phase uncordon`", node.Name)
	default:
		env.UI.Printf("Node %s is uncordoned", node.Name)
	}
	return nil
}

// The delays between attempts to evict the remaining Pods. The first are short, as most Pods end quickly.
const (
	firstEvictionDelay = 100 * time.Millisecond
	evictionDelay      = 2 * time.Second
)

// podsLeftError lists the remaining Pods with their last known state.
type podsLeftError struct{ pods []string }

func (e *podsLeftError) Error() string { return strings.Join(e.pods, "; ") }

func evict(ctx context.Context, env *step.Env, pods []corev1.Pod) error {
	limit := env.Config.Upgrade.Drain.Timeout
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e := eviction{env: env, chosen: map[types.UID]bool{}, said: map[types.UID]string{}}
	for i := range pods {
		e.chosen[pods[i].UID] = true
	}
	left := (*podsLeftError)(nil)
	policy := retry.Policy{First: firstEvictionDelay, Slowest: evictionDelay, Retryable: func(err error) bool { return errors.As(err, &left) }}
	err := policy.Do(limited, e.try)
	if !errors.As(err, &left) || ctx.Err() != nil {
		return err
	}
	return fault.WithRemedy(
		errors.Errorf("node %s was not drained within %s; remaining Pods: %v", env.Config.Name, limit, left),
		"the node stays cordoned; deal with these Pods and run the same command again, with a longer --drain-timeout if needed; "+
			"to give up, run `slipway upgrade node phase uncordon` here")
}

// eviction has the Pods to evict, and the last reason printed for each blocked Pod.
type eviction struct {
	env    *step.Env
	chosen map[types.UID]bool
	said   map[types.UID]string
}

// try evicts the remaining Pods, and returns a *podsLeftError until they're gone. It lists Pods instead of getting each: on a
// worker it has only the kubelet's rights, and a kubelet may not get Pods that are gone.
func (e *eviction) try(ctx context.Context) error {
	pods, err := e.env.Cluster.PodsOn(ctx, e.env.Config.Name)
	if err != nil {
		return err
	}
	var left []string
	for i := range pods {
		if !e.chosen[pods[i].UID] {
			continue
		}
		why, err := e.evict(ctx, &pods[i])
		if err != nil {
			return err
		}
		left = append(left, podName(&pods[i])+" ("+why+")")
	}
	if len(left) == 0 {
		return nil
	}
	return &podsLeftError{left}
}

// evict evicts a Pod, and returns why it may still be there: the API's last answer, if the deadline cuts off the request.
func (e *eviction) evict(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	if pod.DeletionTimestamp != nil {
		return "has been terminating since " + pod.DeletionTimestamp.UTC().Format(time.RFC3339), nil
	}
	err = e.env.Cluster.Evict(ctx, pod)
	blocked := (*cluster.BlockedError)(nil)
	switch {
	case err != nil && ctx.Err() != nil:
		return cmp.Or(e.said[pod.UID], err.Error()), nil //nolint:nilerr // evict's own error names it, with all the other Pods
	case !errors.As(err, &blocked):
		return "evicted just now", err
	}
	if e.said[pod.UID] != blocked.Reason {
		e.said[pod.UID] = blocked.Reason
		e.env.UI.Printf("Waiting to evict %s: %s", podName(pod), blocked.Reason)
	}
	return blocked.Reason, nil
}

func podName(pod *corev1.Pod) string { return fmt.Sprintf("%s/%s", pod.Namespace, pod.Name) }

func podNames(pods []corev1.Pod) (names []string) {
	for i := range pods {
		names = append(names, podName(&pods[i]))
	}
	return names
}
