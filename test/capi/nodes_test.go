// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hasNodes asks the cluster itself: its Nodes are those of the Machines, they're Ready, and run the version. So do its own
// Pods.
func (s *scenario) hasNodes(planes, workers int, version string) error {
	kubeconfig := &corev1.Secret{}
	if err := s.get(kubeconfig, clusterName+"-kubeconfig"); err != nil {
		return err
	}
	_, c := s.connect(kubeconfig.Data["value"])
	machines, err := s.machines()
	if err != nil {
		return err
	}
	list := &corev1.NodeList{}
	if err := c.List(s.Context(), list); err != nil {
		return err
	}
	var names, want []string
	found := 0
	for _, node := range list.Items {
		names = append(names, node.Name)
		if _, isPlane := node.Labels["node-role.kubernetes.io/control-plane"]; isPlane {
			found++
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready || node.Status.NodeInfo.KubeletVersion != version {
			return fmt.Errorf("%s is Ready: %v, with %s", node.Name, ready, node.Status.NodeInfo.KubeletVersion)
		}
	}
	for _, machine := range machines {
		want = append(want, machine.Status.NodeRef.Name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) || found != planes || len(names) != planes+workers {
		return fmt.Errorf("the Nodes are %q, %d of them control planes; the Machines' are %q", names, found, want)
	}
	return hasPods(s.Context(), c, names, version)
}

// hasPods checks that all Pods of the cluster's own are Ready and on these Nodes, and that each Node has kube-proxy of a version,
// like the control plane's components.
func hasPods(ctx context.Context, c client.Client, names []string, version string) error {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return err
	}
	var proxies []string
	for _, pod := range list.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready || !slices.Contains(names, pod.Spec.NodeName) {
			return fmt.Errorf("%s on Node %q is Ready: %v", pod.Name, pod.Spec.NodeName, ready)
		}
		isProxy := pod.Labels["k8s-app"] == "kube-proxy"
		if isProxy {
			proxies = append(proxies, pod.Spec.NodeName)
		}
		ofRelease := isProxy || strings.HasPrefix(pod.Labels["component"], "kube-")
		if image := pod.Spec.Containers[0].Image; ofRelease && !strings.HasSuffix(image, ":"+version) {
			return fmt.Errorf("%s has the image %s", pod.Name, image)
		}
	}
	slices.Sort(proxies)
	if !slices.Equal(proxies, names) {
		return fmt.Errorf("kube-proxy runs on the Nodes %q of %q", proxies, names)
	}
	return nil
}
