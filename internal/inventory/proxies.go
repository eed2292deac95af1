// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/manifests"
)

// proxies collects kube-proxy's configuration and command line, if the cluster has any.
func (c *collector) proxies(ctx context.Context) {
	if _, err := version.ParseSemantic(c.State.KubeProxy); err == nil {
		c.inputs.ProxyFrom = c.State.KubeProxy
	}
	if !c.proxyCommand(ctx) {
		return // nothing reads the ConfigMap
	}
	const where = "ConfigMap kube-system/" + manifests.KubeProxyConfigMap
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = metav1.NamespaceSystem, manifests.KubeProxyConfigMap
	found, err := c.API.Get(ctx, cm)
	if err != nil {
		c.gap(where, "config.conf", "check the API server, and plan again", "%s was not checked: %v", where, err)
	}
	if text := cm.Data["config.conf"]; found && text != "" {
		c.inputs.Proxies = []breakages.File{{Where: where, Program: releases.Proxy, Data: []byte(text)}}
	}
}

// proxyCommand collects the command line in kube-proxy's DaemonSet: an upgrade keeps an edited one. It reports whether kube-proxy may
// be running.
func (c *collector) proxyCommand(ctx context.Context) bool {
	const where = "DaemonSet kube-system/" + manifests.KubeProxyName
	set := &appsv1.DaemonSet{}
	set.Namespace, set.Name = metav1.NamespaceSystem, manifests.KubeProxyName
	found, err := c.API.Get(ctx, set)
	if err != nil {
		c.gap(where, "command", "check the API server, and plan again", "%s was not checked: %v", where, err)
	}
	if args := containerArgs(set.Spec.Template.Spec, manifests.KubeProxyName); len(args) > 0 {
		c.inputs.Commands = append(c.inputs.Commands, breakages.Command{Where: where, Program: releases.Proxy, Args: args})
	}
	return found || err != nil
}
