// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const schedulerPort = 10259

func Scheduler(n *config.Node, v HostView) *corev1.Pod {
	extra := n.Cluster.Scheduler
	conf := path.Join(n.Paths.Kubernetes, "scheduler.conf")
	args := []config.Arg{
		{Name: "authentication-kubeconfig", Value: conf},
		{Name: "authorization-kubeconfig", Value: conf},
		{Name: "bind-address", Value: "127.0.0.1"},
		{Name: "kubeconfig", Value: conf},
		{Name: "leader-elect", Value: "true"},
	}
	return staticPod{
		name:   SchedulerName,
		args:   commandLine(args, extra.ExtraArgs),
		env:    environment(v.ProxyEnv, extra.ExtraEnvs),
		cpu:    "100m",
		mounts: withExtra([]mount{kubeconfig(n, "scheduler.conf")}, extra.ExtraVolumes),
		health: loopbackEndpoint(extra.ExtraArgs, schedulerPort),
		probes: probes{"/livez", "/readyz", "/livez"},
	}.pod(n, v)
}
