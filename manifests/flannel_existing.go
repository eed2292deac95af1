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
	if at := FlannelEndpoint(d); at == "" || at != from {
		return false
	}
	host, port := flannelServer(d)
	host.Value, port.Value, _ = net.SplitHostPort(to)
	return true
}

// FlannelEndpoint returns the host:port at which a DaemonSet from Flannel finds the API; empty if it doesn't say.
func FlannelEndpoint(d *appsv1.DaemonSet) string {
	host, port := flannelServer(d)
	if host == nil || port == nil {
		return ""
	}
	return net.JoinHostPort(host.Value, port.Value)
}

// flannelServer returns the variables with the API's host and port; nil for a missing one.
func flannelServer(d *appsv1.DaemonSet) (host, port *corev1.EnvVar) {
	agent := flannelAgentOf(d)
	for i := range agent.Env {
		switch v := &agent.Env[i]; v.Name {
		case serviceHost:
			host = v
		case servicePort:
			port = v
		}
	}
	return host, port
}

// flannelAgentOf is a DaemonSet's container with flannel; an empty one if it has none.
func flannelAgentOf(d *appsv1.DaemonSet) *corev1.Container {
	list := d.Spec.Template.Spec.InitContainers
	at := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == FlannelContainer })
	if at < 0 {
		return &corev1.Container{}
	}
	return &list[at]
}

// AsOlderFlannel gives made, a DaemonSet from Flannel, what older releases wrote, as far as have, the existing one, has it. Their probes
// set no timeout, for which the API chooses a second, and had 120 tries to start. Their Pods had no SELinux type.
func AsOlderFlannel(made, have *appsv1.DaemonSet) {
	ours, there := flannelAgentOf(made), flannelAgentOf(have)
	theirs := []*corev1.Probe{there.StartupProbe, there.LivenessProbe, there.ReadinessProbe}
	for i, p := range []*corev1.Probe{ours.StartupProbe, ours.LivenessProbe, ours.ReadinessProbe} {
		if theirs[i] != nil && theirs[i].TimeoutSeconds <= 1 {
			p.TimeoutSeconds = theirs[i].TimeoutSeconds
		}
	}
	if p := there.StartupProbe; p != nil && p.FailureThreshold == 120 {
		ours.StartupProbe.FailureThreshold = p.FailureThreshold
	}
	if s := have.Spec.Template.Spec.SecurityContext; s == nil || s.SELinuxOptions == nil {
		made.Spec.Template.Spec.SecurityContext = nil
	}
}
