// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/step"
)

// NextFiles returns the files for the kubelet's next start. The node's own settings stay as they are.
func NextFiles(env *step.Env) ([]ownership.File, error) {
	instance, err := nextInstance(env)
	if err != nil {
		return nil, err
	}
	data, corrections, err := nextConfig(env, instance)
	if err != nil {
		return nil, err
	}
	warnCorrections(env, corrections)
	paths := env.Config.Paths
	files, flags := []ownership.File{settingsFile(paths.InstanceConfig(), instance), settingsFile(paths.KubeletConfig(), data)}, settingsFile(paths.KubeletFlags(), nil)
	if flags.Data, err = host.ReadIfExists(env.Host, flags.Path); err != nil || flags.Data == nil {
		return files, err
	}
	var removed []string
	if flags.Data, removed = kubeletconfig.WithoutLeftovers(flags.Data); len(removed) > 0 {
		env.UI.Printf("Removing flags of older versions from %s: %s", flags.Path, strings.Join(removed, " "))
	}
	return append(files, flags), nil // even if unchanged, for its mode: kubeadm before 1.37 lets everybody read it
}

// NextConfig returns this host's config.yaml as the upgrade writes it.
func NextConfig(env *step.Env) ([]byte, error) {
	instance, err := nextInstance(env)
	if err != nil {
		return nil, err
	}
	data, _, err := nextConfig(env, instance)
	return data, err
}

// nextInstance returns this node's own settings: the present settings, or the defaults if there are none.
func nextInstance(env *step.Env) ([]byte, error) {
	data, err := host.ReadIfExists(env.Host, env.Config.Paths.InstanceConfig())
	if err == nil && data == nil {
		data = kubeletconfig.InstanceConfigYAML(env.Config)
	}
	return data, err
}

// nextConfig returns config.yaml: the cluster's settings, overridden by this node's own, then by the user's patches.
func nextConfig(env *step.Env, instance []byte) ([]byte, []kubeletconfig.Correction, error) {
	own, err := config.ParsePatches([]config.PatchFile{{Name: config.PatchKubelet + "+strategic.yaml", Data: instance}})
	if err != nil {
		return nil, nil, err
	}
	return configWith(env, own)
}
