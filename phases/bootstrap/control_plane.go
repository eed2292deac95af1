// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func controlPlane() step.Phase {
	common := []string{"cert-dir", "config", "dry-run", "image-repository", "kubernetes-version", "patches", "profile"}
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
	if err := ensureProfileFiles(env, component); err != nil {
		return err
	}
	if err := env.Accounts().Give(component); err != nil {
		return err
	}
	if err := env.Host.EnsureDir(env.Config.Paths.Manifests, 0o700); err != nil {
		return err
	}
	file := ownership.File{Path: env.Config.Paths.StaticPod(component), Data: data, Mode: 0o600}
	keeper := podKeeper(env, component)
	pending, err := keeper.Pending(staticPodWriter(env, component), file)
	if err != nil {
		return err
	}
	if env.Rerun && keeper.Unfinished {
		return replaceUnfinished(ctx, env, component, pending)
	}
	if err := checkEtcdCanBeRewritten(ctx, env, component, pending); err != nil {
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
	if err := node.CheckEtcdStartable(env); err != nil {
		return err
	}
	return env.Host.EnsureDir(env.Config.Cluster.Etcd.Local.DataDir, 0o700)
}

// checkEtcdCanBeRewritten is checkLocalEtcdCanStop for a phase that's about to rewrite etcd's static Pod.
func checkEtcdCanBeRewritten(ctx context.Context, env *step.Env, component string, pending []ownership.File) error {
	if component != manifests.EtcdName {
		return nil
	}
	differing, err := ownership.Differing(env.Host, pending)
	if err != nil || len(differing) == 0 {
		return err
	}
	return checkLocalEtcdCanStop(ctx, env)
}

// checkLocalEtcdCanStop returns a *QuorumError if the etcd running from this host's static Pod is about to restart and the other
// members need it. An init repairs broken control planes, and its etcd may never have come up, so if nobody answers, it only
// warns. A join has just had an answer from etcd.
func checkLocalEtcdCanStop(ctx context.Context, env *step.Env) error {
	if _, there := thisnode.EtcdMember(env.Host, env.Config.Paths); !there {
		return nil
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err == nil && len(running) == 0 {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	own, _ := node.OwnMember(env, etcd.MembersOf(all))
	if err == nil && own < 0 || err != nil && env.Config.Join == nil {
		env.UI.Warn("the kubelet restarts etcd with its new static Pod, and other members may need this one",
			"`slipway diagnose` says whether etcd works; other control planes show its members")
		return ctx.Err()
	}
	before, err := staticPodThere(env, manifests.EtcdName)
	if err != nil {
		return err
	}
	return node.CheckEtcdCanStop(ctx, env, []node.Replacement{{Name: manifests.EtcdName, Before: before}})
}
