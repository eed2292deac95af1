// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// NextFiles returns the files for the kubelet's next start. The node's own settings stay as they are.
func NextFiles(env *step.Env) ([]ownership.File, error) {
	flags, removed, err := nextFlags(env)
	if err != nil {
		return nil, err
	}
	instance, err := nextInstance(env, removed)
	if err != nil {
		return nil, err
	}
	data, corrections, err := nextConfig(env, instance)
	if err != nil {
		return nil, err
	}
	warnCorrections(env, corrections)
	paths := env.Config.Paths
	files := []ownership.File{settingsFile(paths.InstanceConfig(), instance), settingsFile(paths.KubeletConfig(), data)}
	if flags == nil {
		return files, nil
	}
	if len(removed) > 0 {
		env.UI.Printf("Removing flags of older versions from %s: %s", paths.KubeletFlags(), strings.Join(removed, " "))
	}
	// Even if unchanged, for its mode: kubeadm before 1.37 lets everybody read it.
	return append(files, settingsFile(paths.KubeletFlags(), flags)), nil
}

// NextConfig returns this host's config.yaml as the upgrade writes it.
func NextConfig(env *step.Env) ([]byte, error) {
	_, removed, err := nextFlags(env)
	if err != nil {
		return nil, err
	}
	instance, err := nextInstance(env, removed)
	if err != nil {
		return nil, err
	}
	data, _, err := nextConfig(env, instance)
	return data, err
}

// NewKernelCheck is KernelDefaults for the kubelet as its next start finds it here: with NextConfig's settings, which have the node's own
// and the patches, and with the flags that stay.
func NewKernelCheck(env *step.Env) preflight.Check {
	check := preflight.KernelDefaults(&env.Config.Machine)
	check.Run = func(ctx context.Context, h preflight.View) []fault.Finding {
		if _, err := env.Patches(); err != nil {
			return nil // the check of the patches reports it
		}
		next, err := nextMachine(env)
		if err != nil {
			return []fault.Finding{fault.Of(err)}
		}
		return preflight.KernelDefaults(next).Run(ctx, h)
	}
	return check
}

func nextMachine(env *step.Env) (*config.Machine, error) {
	flags, _, err := nextFlags(env)
	if err != nil {
		return nil, err
	}
	data, err := NextConfig(env)
	if err != nil {
		return nil, err
	}
	settings := kubeletconfig.New()
	if err := yaml.Unmarshal(data, settings); err != nil {
		return nil, errors.Wrap(err, env.Config.Paths.KubeletConfig())
	}
	return env.Config.Machine.With(func(m *config.Machine) {
		m.Kubelet, m.KubeletExtraArgs = *settings, nil
		for _, f := range thisnode.KubeadmFlags(flags) {
			m.KubeletExtraArgs = append(m.KubeletExtraArgs, f.Arg)
		}
	}), nil
}

// nextFlags returns kubeadm-flags.env without flags of older versions, and these flags; nil if the file doesn't exist.
func nextFlags(env *step.Env) (data []byte, removed []string, err error) {
	data, err = host.ReadIfExists(env.Host, env.Config.Paths.KubeletFlags())
	if err != nil || data == nil {
		return nil, nil, err
	}
	data, removed = kubeletconfig.WithoutLeftovers(data)
	return data, removed, nil
}

// nextInstance returns this node's own settings: the present settings, or the defaults if there are none. They take over the
// runtime's endpoint from a removed flag, which has overridden them so far.
func nextInstance(env *step.Env, removed []string) ([]byte, error) {
	data, err := host.ReadIfExists(env.Host, env.Config.Paths.InstanceConfig())
	if err == nil && data == nil {
		data = kubeletconfig.InstanceConfigYAML(env.Config)
	}
	if err != nil {
		return nil, err
	}
	data, err = kubeletconfig.WithEndpointOf(removed, data)
	return data, errors.WithMessage(err, env.Config.Paths.InstanceConfig())
}

// nextConfig returns config.yaml: the cluster's settings, overridden by this node's own, then by the user's patches.
func nextConfig(env *step.Env, instance []byte) ([]byte, []kubeletconfig.Correction, error) {
	own, err := config.ParsePatches([]config.PatchFile{{Name: config.PatchKubelet + "+strategic.yaml", Data: instance}})
	if err != nil {
		return nil, nil, err
	}
	return configWith(env, own)
}
