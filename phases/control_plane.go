// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

func controlPlane() Phase {
	common := []string{"cert-dir", "config", "dry-run", "image-repository", "kubernetes-version", "patches"}
	with := func(more ...string) []string { return append(more, common...) }
	return Phase{
		Name:    "control-plane",
		Summary: "Write the static Pods of the control plane",
		Flags: with("apiserver-advertise-address", "apiserver-bind-port", "control-plane-endpoint", "feature-gates",
			"pod-network-cidr", "service-cidr"),
		SideBySide: true,
		Children: []Phase{
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

func localEtcd() Phase {
	return Phase{
		Name:    "etcd",
		Summary: "Write the static Pod of the local etcd",
		Children: []Phase{
			staticPod("local", manifests.EtcdName, "Write the static Pod of the local etcd",
				[]string{"cert-dir", "config", "dry-run", "image-repository", "patches"}),
		},
		Skip: unlessLocalEtcd,
	}
}

func unlessLocalEtcd(env *Env) string {
	if env.Config.Cluster.Etcd.External != nil {
		return "etcd is external"
	}
	return ""
}

func staticPod(name, component, summary string, flags []string) Phase {
	return Phase{
		Name:    name,
		Summary: summary,
		Flags:   flags,
		Run:     func(ctx context.Context, env *Env) error { return writeStaticPod(ctx, env, component, nil) },
	}
}

// writeStaticPod writes the manifest of a component, which the kubelet finds by itself. members are those that an
// etcd joins, see manifests.Etcd.
func writeStaticPod(ctx context.Context, env *Env, component string, members []manifests.Member) error {
	if err := env.accounts().Ensure(); err != nil {
		return err
	}
	view, err := hostView(env)
	if err != nil {
		return err
	}
	data, err := staticPodYAML(env, component, view, members)
	if err != nil {
		return err
	}
	if err := ensureDataDir(env, component); err != nil {
		return err
	}
	if err := env.pki().EnsureSigner(); err != nil {
		return err
	}
	if err := env.accounts().Give(component); err != nil {
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

// staticPodWriter returns the command that writes the manifest of a component.
func staticPodWriter(env *Env, component string) string {
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

// staticPodYAML returns the manifest with the user's patches applied.
func staticPodYAML(env *Env, component string, view manifests.HostView, members []manifests.Member) ([]byte, error) {
	data, err := manifests.Encode(newStaticPod(env.Config, component, view, members))
	if err != nil {
		return nil, err
	}
	patches, err := env.patches()
	if err != nil {
		return nil, err
	}
	return patches.Apply(component, data, &corev1.Pod{})
}

// ensureDataDir creates etcd's directory before the kubelet would, with a mode that is too wide (CIS Kubernetes
// Benchmark 1.1.11).
func ensureDataDir(env *Env, component string) error {
	if component != manifests.EtcdName {
		return nil
	}
	return env.Host.EnsureDir(env.Config.Cluster.Etcd.Local.DataDir, 0o700)
}

func newStaticPod(n *config.Node, component string, view manifests.HostView, members []manifests.Member) *corev1.Pod {
	switch component {
	case manifests.EtcdName:
		return manifests.Etcd(n, view, members)
	case manifests.APIServerName:
		return manifests.APIServer(n, view)
	case manifests.ControllerManagerName:
		return manifests.ControllerManager(n, view)
	}
	return manifests.Scheduler(n, view)
}

// hostView reads what the static Pods depend on beyond the configuration.
func hostView(env *Env) (manifests.HostView, error) {
	users, err := env.accounts().Numbers()
	if err != nil {
		return manifests.HostView{}, err
	}
	view := manifests.HostView{ProxyEnv: manifests.ProxyEnv(env.Host.Environ()), Users: users}
	for _, dir := range manifests.CertDirs() {
		if _, err := env.Host.ReadDir(dir); err == nil {
			view.CertDirs = append(view.CertDirs, dir)
		}
	}
	if view.ExternalCA, err = externalCA(env); err != nil {
		return view, err
	}
	view.SeveralCAs, err = env.pki().SeveralCAs()
	return view, err
}

// externalCA reports whether the cluster's CA is here without its key.
func externalCA(env *Env) (bool, error) {
	row, _ := certs.Find(env.Config, certs.CA)
	cert, key, err := env.pki().Read(row)
	return cert != nil && key == nil, err
}
