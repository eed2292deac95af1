// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package addon installs and upgrades CoreDNS, kube-proxy and the Pod network. Install is init's phase, and Network a part of
// it; Upgrade is the upgrade's phase. Each add-on has a file. internal/corefile migrates CoreDNS's configuration.
package addon

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Install is the phase addon of init: CoreDNS, kube-proxy, and the Pod network of --network.
func Install() step.Phase {
	return step.Phase{
		Name:    "addon",
		Summary: "Install the cluster's DNS and service proxy, and a Pod network if one is named",
		Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run",
			"feature-gates", "image-repository", "kubeconfig", "kubernetes-version", "network", "pod-network-cidr", "service-cidr", "service-dns-domain"},
		SideBySide: true,
		Children: []step.Phase{
			{
				Name:    "coredns",
				Summary: "Install CoreDNS",
				Flags: []string{"config", "dry-run", "feature-gates", "image-repository", "kubeconfig", "kubernetes-version",
					"print-manifest", "service-cidr", "service-dns-domain"},
				Run: func(ctx context.Context, env *step.Env) error {
					return runAddon(ctx, env, "coredns", "CoreDNS", patched(manifests.CoreDNS))
				},
				Print: printed(patched(manifests.CoreDNS)),
				Skip:  dnsDisabled,
			},
			{
				Name:    "kube-proxy",
				Summary: "Install kube-proxy",
				Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run",
					"image-repository", "kubeconfig", "kubernetes-version", "pod-network-cidr", "print-manifest"},
				Run: func(ctx context.Context, env *step.Env) error {
					return runAddon(ctx, env, "kube-proxy", "kube-proxy", patched(manifests.KubeProxy))
				},
				Print: printed(patched(manifests.KubeProxy)),
				Skip:  ProxyDisabled,
			},
			Network(),
		},
	}
}

func printed(objects func(*step.Env) ([]manifests.Object, error)) func(*step.Env) ([]byte, error) {
	return func(env *step.Env) ([]byte, error) {
		objs, err := objects(env)
		if err != nil {
			return nil, err
		}
		return manifests.Print(objs)
	}
}

// patched returns an add-on's objects with the user's patches.
func patched(objects addonObjects) func(*step.Env) ([]manifests.Object, error) {
	return func(env *step.Env) ([]manifests.Object, error) {
		patches, err := env.Patches()
		if err != nil {
			return nil, err
		}
		return objects(env.Config, patches)
	}
}

// runAddon installs an add-on. In a cluster that already has it, init creates missing objects; the phase's own command replaces
// edited fields, and says so. command is that command's last words, name the add-on's usual name.
func runAddon(ctx context.Context, env *step.Env, command, name string, objects func(*step.Env) ([]manifests.Object, error)) error {
	objs, err := objects(env)
	if err != nil {
		return err
	}
	if err := env.Keeper().KeepUnknown(ctx, objs); err != nil {
		return err
	}
	if env.Rerun {
		env.UI.Printf("Checking %s, and installing missing objects", name)
	} else {
		if objs, err = replaceable(ctx, env, objs); err != nil {
			return err
		}
		env.UI.Printf("Installing %s", name)
	}
	writer := "init phase addon " + command
	for _, stage := range manifests.Stages(objs) {
		if err := env.Keeper().EnsureMissing(ctx, writer, stage...); err != nil {
			return err
		}
	}
	return nil
}

// replaceable names the objects in the cluster about to be replaced, and leaves out an edited Corefile: the cluster's names
// depend on it, and kubeadm keeps it, too.
func replaceable(ctx context.Context, env *step.Env, objs []manifests.Object) ([]manifests.Object, error) {
	found, err := env.Keeper().Compare(ctx, objs)
	if err != nil {
		return nil, err
	}
	var rest []manifests.Object
	for i, obj := range objs {
		_, settings := obj.(*corev1.ConfigMap)
		switch d := found[i]; {
		case d.Change == cluster.Update && settings && obj.GetName() == manifests.CorefileMap:
			env.Keeper().SayKept(obj, d, "to replace it, delete it (`kubectl -n kube-system delete configmap coredns`) and run this command again")
			continue
		case d.Change == cluster.Update:
			env.UI.Warnf("replacing edited fields of %s: %s", objectName(obj), ownership.FieldDifference(obj, d))
		}
		rest = append(rest, obj)
	}
	return rest, nil
}

// dnsDisabled and ProxyDisabled say why an add-on is skipped; empty if it isn't.
func dnsDisabled(env *step.Env) string {
	if env.Config.Cluster.DNS.Disabled {
		return "dns.disabled is set in the ClusterConfiguration"
	}
	return ""
}

// ProxyDisabled is the Skip of kube-proxy's phases: it returns why the cluster has none.
func ProxyDisabled(env *step.Env) string {
	if env.Config.Cluster.Proxy.Disabled {
		return "proxy.disabled is set in the ClusterConfiguration"
	}
	return ""
}
