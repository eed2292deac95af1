// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"fmt"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

func Network() step.Phase {
	return step.Phase{
		Name:    "network",
		Summary: "Install the Pod network given with --network",
		Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run", "image-repository",
			"kubeconfig", "kubernetes-version", "network", "pod-network-cidr", "print-manifest", "service-cidr"},
		Run: func(ctx context.Context, env *step.Env) error {
			if err := flannelFits(ctx, env); err != nil {
				return err
			}
			if err := CheckNetwork(ctx, env); err != nil {
				return err
			}
			return runAddon(ctx, env, "network --network "+env.Config.NetworkAddOn.Name, networkName(env), NetworkObjects)
		},
		Print: printed(NetworkObjects),
		Skip: func(env *step.Env) string {
			if env.Config.NetworkAddOn.Name == "" {
				return "no --network is given"
			}
			return ""
		},
	}
}

// flannelFits refuses to install flannel with another Pod network, endpoint or kind of rules than the cluster's. The phase's own
// command gets these from flags and a file, which people forget: with defaults instead, Pods would lose their network.
func flannelFits(ctx context.Context, env *step.Env) error {
	n := env.Config
	if n.NetworkAddOn.Name != config.Flannel || env.Again { // a whole init has compared its configuration with the cluster's
		return nil
	}
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration")
	if err != nil || text == "" { // a cluster in the making
		return err
	}
	have, _, err := config.LoadCluster([]byte(text), nil, nil, nil, config.Options{AnyVersion: true})
	if err != nil {
		return errors.WithMessage(err, config.ClusterSource)
	}
	mode, err := kubeProxyMode(ctx, env, string(n.KubeProxy.Mode))
	if err != nil {
		return err
	}
	for _, field := range []struct{ name, cluster, given string }{
		{"networking.podSubnet", have.Cluster.Networking.PodSubnet, n.Cluster.Networking.PodSubnet},
		{"controlPlaneEndpoint", have.Cluster.ControlPlaneEndpoint, n.Cluster.ControlPlaneEndpoint},
		{"the mode of kube-proxy", mode, string(n.KubeProxy.Mode)},
	} {
		if field.cluster != field.given {
			return fault.New(fmt.Sprintf("flannel would get %q for %s, and the cluster has %q", field.given, field.name, field.cluster),
				"give the configuration that the cluster was made with: --config FILE, or the same flags")
		}
	}
	return nil
}

// kubeProxyMode returns the mode of the cluster's kube-proxy, or otherwise if it has none.
func kubeProxyMode(ctx context.Context, env *step.Env, otherwise string) (string, error) {
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeProxyName, "config.conf")
	if err != nil || text == "" {
		return otherwise, err
	}
	var settings struct{ Mode string }
	err = yaml.Unmarshal([]byte(text), &settings)
	return settings.Mode, errors.Wrap(err, "the settings in ConfigMap kube-system/kube-proxy")
}

func networkName(env *step.Env) string {
	if env.Config.NetworkAddOn.FromFile() {
		return "the Pod network of " + env.Config.NetworkAddOn.File()
	}
	return env.Config.NetworkAddOn.Name
}

func NetworkObjects(env *step.Env) ([]manifests.Object, error) {
	return manifests.Network(env.Config, config.PatchSet{})
}
