// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
)

// podsToEvict returns the Pods that have to leave this node, including terminating Pods. It fails if evicting a Pod would lose
// something and --drain-force isn't given. The rules are those of `kubectl drain --ignore-daemonsets` (test/drain compares them).
func podsToEvict(ctx context.Context, env *step.Env) ([]corev1.Pod, error) {
	pods, err := env.Cluster.PodsOn(ctx, env.Config.Name)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return staysOnNode(&p) })
	if env.Config.Upgrade.Drain.Force {
		return pods, nil
	}
	var lost []string
	for i := range pods {
		if why := losses(&pods[i]); len(why) > 0 {
			lost = append(lost, fmt.Sprintf("%s (%s)", podName(&pods[i]), strings.Join(why, ", ")))
		}
	}
	if len(lost) == 0 {
		return pods, nil
	}
	return nil, fault.WithRemedy(
		errors.Errorf("node %s is not drained, because these Pods would not come back as they are: %s", env.Config.Name, strings.Join(lost, "; ")),
		"move or delete them yourself, or evict them with --drain-force")
}

// staysOnNode reports whether evicting a Pod is pointless: the kubelet or the DaemonSet's controller would start it again.
func staysOnNode(pod *corev1.Pod) bool {
	if cluster.IsMirror(pod) {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String() && !cluster.PodEnded(pod)
}

// losses lists what an eviction would lose: nothing, if the Pod has ended or is terminating.
func losses(pod *corev1.Pod) (why []string) {
	if cluster.PodEnded(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	if metav1.GetControllerOf(pod) == nil {
		why = append(why, "no controller would recreate it")
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
		why = append(why, "has data in an emptyDir volume")
	}
	return why
}
