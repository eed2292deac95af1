// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

func networkAddon() Phase {
	return Phase{
		Name:    "network",
		Summary: "Install the Pod network that --network names",
		Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run", "image-repository",
			"kubeconfig", "kubernetes-version", "network", "pod-network-cidr", "print-manifest", "service-cidr"},
		Run: func(ctx context.Context, env *Env) error {
			return runAddon(ctx, env, "network --network "+env.Config.NetworkAddOn.Name, networkName(env), networkObjects)
		},
		Print: printed(networkObjects),
		Skip: func(env *Env) string {
			if env.Config.NetworkAddOn.Name == "" {
				return "no --network is given"
			}
			return ""
		},
	}
}

// networkName is what people call the network add-on.
func networkName(env *Env) string {
	if env.Config.NetworkAddOn.FromFile() {
		return "the Pod network of " + env.Config.NetworkAddOn.Name
	}
	return env.Config.NetworkAddOn.Name
}

func networkObjects(env *Env) ([]manifests.Object, error) {
	return manifests.Network(env.Config, config.PatchSet{})
}
