// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The variables with which flannel finds the API: client-go's.
const (
	serviceHost = "KUBERNETES_SERVICE_HOST"
	servicePort = "KUBERNETES_SERVICE_PORT"
)

// MoveFlannel leads a DaemonSet from Flannel from one host:port of the API to another, and reports whether it had the former.
func MoveFlannel(d *appsv1.DaemonSet, from, to string) (moved bool) {
	list := d.Spec.Template.Spec.InitContainers
	at := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == FlannelContainer })
	if at < 0 {
		return false
	}
	host := slices.IndexFunc(list[at].Env, func(v corev1.EnvVar) bool { return v.Name == serviceHost })
	port := slices.IndexFunc(list[at].Env, func(v corev1.EnvVar) bool { return v.Name == servicePort })
	if host < 0 || port < 0 || net.JoinHostPort(list[at].Env[host].Value, list[at].Env[port].Value) != from {
		return false
	}
	list[at].Env[host].Value, list[at].Env[port].Value, _ = net.SplitHostPort(to)
	return true
}
