// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
)

func upgradeKubeletConfig() step.Phase {
	return step.Phase{
		Name:    "kubelet-config",
		Summary: "Update the kubelet's settings on this node, for its next start",
		Flags:   []string{"config", "dry-run", "kubeconfig", "patches"},
		Run:     runUpgradeKubeletConfig,
	}
}

// runUpgradeKubeletConfig doesn't restart the kubelet: usually, a newer kubelet is installed next.
func runUpgradeKubeletConfig(_ context.Context, env *step.Env) error {
	files, err := upgradedKubeletFiles(env)
	if err == nil {
		files, err = ownership.Differing(env.Host, files)
	}
	if err != nil || len(files) == 0 {
		return err
	}
	if err := backup.Kubelet(env, files); err != nil {
		return err
	}
	return env.Keeper().Replace(files)
}

// upgradedKubeletFiles returns the files for the kubelet's next start. The node's own settings stay as they are.
func upgradedKubeletFiles(env *step.Env) ([]ownership.File, error) {
	file := func(name string, data []byte) ownership.File {
		return ownership.File{Path: filepath.Join(env.Config.Paths.Kubelet, name), Data: data, Mode: 0o600}
	}
	instance := file("instance-config.yaml", kubeletconfig.InstanceConfigYAML(env.Config))
	flags := file("kubeadm-flags.env", nil)
	there, err := host.ReadIfExists(env.Host, instance.Path)
	if err != nil {
		return nil, err
	}
	if there != nil {
		instance.Data = there
	}
	data, corrections, err := upgradedKubeletConfig(env, instance.Data)
	if err != nil {
		return nil, err
	}
	kubelet.WarnCorrections(env, corrections)
	files := []ownership.File{instance, file("config.yaml", data)}
	if flags.Data, err = host.ReadIfExists(env.Host, flags.Path); err != nil || flags.Data == nil {
		return files, err
	}
	var removed []string
	if flags.Data, removed = kubeletconfig.WithoutLeftovers(flags.Data); len(removed) > 0 {
		env.UI.Printf("Removing flags of older versions from %s: %s", flags.Path, strings.Join(removed, " "))
	}
	return append(files, flags), nil // even if unchanged, for its mode: kubeadm before 1.37 lets everybody read it
}

// upgradedKubeletConfig returns config.yaml: the cluster's settings, overridden by this node's own, then by the user's patches.
func upgradedKubeletConfig(env *step.Env, instance []byte) ([]byte, []kubeletconfig.Correction, error) {
	own, err := config.ParsePatches([]config.PatchFile{{Name: config.PatchKubelet + "+strategic.yaml", Data: instance}})
	if err != nil {
		return nil, nil, err
	}
	return kubelet.ConfigWith(env, own)
}
