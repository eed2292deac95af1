// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func controlPlane() step.Phase {
	common := []string{"cert-dir", "config", "dry-run", "image-repository", "kubernetes-version", "patches"}
	with := func(more ...string) []string { return append(more, common...) }
	return step.Phase{
		Name:    "control-plane",
		Summary: "Write the static Pods of the control plane",
		Flags: with("apiserver-advertise-address", "apiserver-bind-port", "control-plane-endpoint", "feature-gates",
			"pod-network-cidr", "service-cidr"),
		SideBySide: true,
		Children: []step.Phase{
			staticPod("apiserver", manifests.APIServerName, "Write the static Pod of the API server",
				with("apiserver-advertise-address", "apiserver-bind-port", "control-plane-endpoint", "feature-gates", "service-cidr")).
				Needing("certs/ca", "certs/apiserver", "certs/apiserver-kubelet-client", "certs/front-proxy-ca",
					"certs/front-proxy-client", "certs/apiserver-etcd-client", "certs/sa"),
			staticPod("controller-manager", manifests.ControllerManagerName, "Write the static Pod of the controller manager",
				with("pod-network-cidr")).Needing("wait-control-plane/api-server", "kubeconfig/controller-manager"),
			staticPod("scheduler", manifests.SchedulerName, "Write the static Pod of the scheduler", with()).
				Needing("wait-control-plane/api-server", "kubeconfig/scheduler"),
		},
	}
}

func localEtcd() step.Phase {
	return step.Phase{
		Name:    "etcd",
		Summary: "Write the static Pod of the local etcd",
		Children: []step.Phase{
			staticPod("local", manifests.EtcdName, "Write the static Pod of the local etcd",
				[]string{"cert-dir", "config", "dry-run", "image-repository", "patches"}),
		},
		Skip: node.UnlessLocalEtcd,
	}
}

func staticPod(name, component, summary string, flags []string) step.Phase {
	return step.Phase{
		Name:    name,
		Summary: summary,
		Flags:   flags,
		Run:     func(ctx context.Context, env *step.Env) error { return writeStaticPod(ctx, env, component, nil) },
	}
}

// writeStaticPod writes a component's manifest, which the kubelet finds by itself. members are the members an etcd joins, see
// manifests.Etcd.
func writeStaticPod(ctx context.Context, env *step.Env, component string, members []manifests.Member) error {
	if err := env.Accounts().Ensure(); err != nil {
		return err
	}
	view, err := node.HostView(env)
	if err != nil {
		return err
	}
	data, err := node.StaticPodYAML(env, component, view, members)
	if err != nil {
		return err
	}
	if err := ensureDataDir(env, component); err != nil {
		return err
	}
	if err := env.PKI().EnsureSigner(); err != nil {
		return err
	}
	if err := env.Accounts().Give(component); err != nil {
		return err
	}
	if err := env.Host.EnsureDir(env.Config.Paths.Manifests, 0o700); err != nil {
		return err
	}
	file := ownership.File{Path: thisnode.StaticPodPath(env.Config, component), Data: data, Mode: 0o600}
	keeper := podKeeper(env, component)
	pending, err := keeper.Pending(staticPodWriter(env, component), file)
	if err != nil {
		return err
	}
	if env.Again && keeper.Unfinished {
		return replaceUnfinished(ctx, env, component, pending)
	}
	if err := spareRewritten(ctx, env, component, pending); err != nil {
		return err
	}
	return keeper.Replace(pending)
}

// staticPodWriter returns the command that writes a component's manifest.
func staticPodWriter(env *step.Env, component string) string {
	switch etcd := component == manifests.EtcdName; {
	case env.Config.Join == nil && etcd:
		return "init phase etcd local"
	case env.Config.Join == nil:
		return "init phase control-plane " + strings.TrimPrefix(component, "kube-")
	case etcd:
		return "join phase etcd-join"
	}
	return "join phase " + prepare + " control-plane"
}

// ensureDataDir creates etcd's directory before the kubelet can create it with too wide a mode (CIS Kubernetes Benchmark 1.1.11).
func ensureDataDir(env *step.Env, component string) error {
	if component != manifests.EtcdName {
		return nil
	}
	return env.Host.EnsureDir(env.Config.Cluster.Etcd.Local.DataDir, 0o700)
}
