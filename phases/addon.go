// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

func addon() Phase {
	return Phase{
		Name:    "addon",
		Summary: "Install the cluster's DNS and service proxy",
		Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run",
			"feature-gates", "image-repository", "kubeconfig", "kubernetes-version", "pod-network-cidr", "service-cidr", "service-dns-domain"},
		SideBySide: true,
		Children: []Phase{
			{
				Name:    "coredns",
				Summary: "Install CoreDNS",
				Flags: []string{"config", "dry-run", "feature-gates", "image-repository", "kubeconfig", "kubernetes-version",
					"print-manifest", "service-cidr", "service-dns-domain"},
				Run:      func(ctx context.Context, env *Env) error { return runAddon(ctx, env, "CoreDNS", coreDNSObjects) },
				Manifest: coreDNSObjects,
				Skip: func(n *config.Node) string {
					return disabled(n.Cluster.DNS.Disabled, "dns.disabled")
				},
			},
			{
				Name:    "kube-proxy",
				Summary: "Install kube-proxy",
				Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run",
					"image-repository", "kubeconfig", "kubernetes-version", "pod-network-cidr", "print-manifest"},
				Run:      func(ctx context.Context, env *Env) error { return runAddon(ctx, env, "kube-proxy", kubeProxyObjects) },
				Manifest: kubeProxyObjects,
				Skip: func(n *config.Node) string {
					return disabled(n.Cluster.Proxy.Disabled, "proxy.disabled")
				},
			},
		},
	}
}

func disabled(is bool, field string) string {
	if is {
		return field + " is set in the ClusterConfiguration"
	}
	return ""
}

func coreDNSObjects(env *Env) ([]manifests.Object, error) {
	patches, err := readPatches(env)
	if err != nil {
		return nil, err
	}
	return manifests.CoreDNS(env.Config, patches)
}

func kubeProxyObjects(env *Env) ([]manifests.Object, error) { return manifests.KubeProxy(env.Config) }

func runAddon(ctx context.Context, env *Env, name string, objects func(*Env) ([]manifests.Object, error)) error {
	objs, err := objects(env)
	if err != nil {
		return err
	}
	before, workloads := manifests.Stages(objs)
	installed, err := isInstalled(ctx, env, workloads)
	if err != nil {
		return err
	}
	if installed {
		env.UI.Printf("%s is installed already; the phase's own command writes it anew", name)
		return nil
	}
	env.UI.Printf("Installing %s", name)
	if err := keepUnknown(ctx, env, before); err != nil {
		return err
	}
	if err := ensure(ctx, env, before...); err != nil {
		return err
	}
	return ensure(ctx, env, workloads...)
}

// isInstalled tells whether an earlier run has installed an add-on: its
// workloads come last. Its settings are the administrator's from then on.
func isInstalled(ctx context.Context, env *Env, workloads []manifests.Object) (bool, error) {
	if !env.Again {
		return false, nil
	}
	for _, obj := range workloads {
		if there, err := exists(ctx, env, obj); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}
