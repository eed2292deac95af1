// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// kubelets are the reporting kubelets of a restored cluster. A report doesn't say that a kubelet works with the restored Pods: it renews
// its Lease at once, and may list its Pods half a minute later. Until then, a restored Pod can count as ready and not run.
type kubelets struct {
	waiting []string // names of Nodes
	// unreached are Nodes that the API server doesn't reach, so nobody knows.
	unreached []string
}

// warnUnreached names the Nodes of unreached kubelets.
func (k *kubelets) warnUnreached(env *step.Env) {
	if len(k.unreached) > 0 {
		env.UI.Warn("whether these nodes' kubelets work with the restored Pods is not known, because the API server does not reach them: "+strings.Join(k.unreached, ", "),
			"look at their Pods in a minute; `systemctl restart kubelet` there makes a kubelet list them again")
	}
}

// behindError says that a kubelet doesn't work with the restored Pods yet.
type behindError struct{ error }

// checkWaiting returns an error while a kubelet doesn't work with its Pods. Each that does isn't asked again.
func (k *kubelets) checkWaiting(ctx context.Context, env *step.Env, pods []corev1.Pod) (err error) {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	type answer struct {
		node string
		err  error
	}
	answers := parallel.Map(k.waiting, 0, func(name string) answer { return answer{name, checkPodsMatch(limited, env, name, pods)} })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k.waiting = nil
	for _, a := range answers {
		var behind behindError
		switch {
		case a.err == nil:
		case errors.As(a.err, &behind):
			k.waiting, err = append(k.waiting, a.node), cmp.Or(err, a.err)
		default:
			k.unreached = append(k.unreached, a.node)
		}
	}
	return err
}

// checkPodsMatch compares the API's Pods with the kubelet's, and with the running ones. Not every kubelet tells which Pods run.
func checkPodsMatch(ctx context.Context, env *step.Env, name string, pods []corev1.Pod) error {
	known, err := podsAt(ctx, env, name, "pods")
	if err != nil {
		return err
	}
	restored := map[types.UID]bool{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName != name || cluster.IsMirror(pod) {
			continue
		}
		restored[pod.UID] = true
		if stays(pod) && !has(known, pod.UID) {
			return behindError{errors.Errorf("the kubelet of node %s has not seen Pod %s/%s yet", name, pod.Namespace, pod.Name)}
		}
	}
	for i := range known {
		if pod := &known[i]; pod.Annotations[configSource] == "api" && !restored[pod.UID] {
			return behindError{errors.Errorf("the kubelet of node %s still has Pod %s/%s, which is not in the restored state", name, pod.Namespace, pod.Name)}
		}
	}
	running, err := podsAt(ctx, env, name, "runningpods/")
	if err != nil {
		return nil //nolint:nilerr // enableDebuggingHandlers may be off
	}
	for i := range pods {
		if pod := &pods[i]; restored[pod.UID] && stays(pod) && cluster.PodReady(pod) && !has(running, pod.UID) {
			return behindError{errors.Errorf("Pod %s/%s counts as ready, and does not run on node %s yet", pod.Namespace, pod.Name, name)}
		}
	}
	return nil
}

// configSource annotates a Pod, in a kubelet's own list, with where the kubelet has it from: api, file or http.
const configSource = "kubernetes.io/config.source"

// stays reports whether a Pod goes on: it hasn't ended, and isn't being deleted.
func stays(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !cluster.PodEnded(pod) }

func has(pods []corev1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == uid })
}

// podsAt reads one of a kubelet's lists of Pods, through the API server.
func podsAt(ctx context.Context, env *step.Env, name, list string) ([]corev1.Pod, error) {
	var found corev1.PodList
	err := cluster.ReadJSON(ctx, env.Cluster, cluster.Query{Path: cluster.KubeletPath(name, list)}, cluster.LargestKubelet, &found)
	return found.Items, err
}
