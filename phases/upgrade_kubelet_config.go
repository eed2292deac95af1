// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
)

func upgradeKubeletConfig() Phase {
	return Phase{
		Name:    "kubelet-config",
		Summary: "Update the kubelet's settings on this node, for its next start",
		Flags:   []string{"config", "dry-run", "kubeconfig", "patches"},
		Run:     runUpgradeKubeletConfig,
	}
}

func runUpgradeKubeletConfig(_ context.Context, env *Env) error {
	dir := env.Config.Paths.Kubelet
	instance := ownership.File{Path: filepath.Join(dir, "instance-config.yaml"), Data: kubeletconfig.InstanceConfigYAML(env.Config), Mode: 0o600}
	there, err := host.ReadIfExists(env.Host, instance.Path)
	if err != nil {
		return err
	}
	if there != nil { // this node's own settings, which an operator may have extended
		instance.Data = there
	}
	data, err := upgradedKubeletConfig(env, instance.Data)
	if err != nil {
		return err
	}
	return env.keeper().Replace([]ownership.File{instance, {Path: filepath.Join(dir, "config.yaml"), Data: data, Mode: 0o600}})
}

// upgradedKubeletConfig returns config.yaml: the cluster's settings, this node's own over them, and then the user's patches.
func upgradedKubeletConfig(env *Env, instance []byte) ([]byte, error) {
	data, err := kubeletconfig.ConfigYAML(env.Config)
	if err != nil {
		return nil, err
	}
	own, err := config.ParsePatches([]config.PatchFile{{Name: config.PatchKubelet + "+strategic.yaml", Data: instance}})
	if err != nil {
		return nil, err
	}
	patches, err := env.patches()
	if err != nil {
		return nil, err
	}
	for _, set := range []config.PatchSet{own, patches} {
		if data, err = set.Apply(config.PatchKubelet, data, kubeletconfig.New()); err != nil {
			return nil, err
		}
	}
	return env.Config.KubeletWithExtra(data)
}
