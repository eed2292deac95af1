// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ConfigYAML returns the kubelet's config.yaml: the cluster's settings, overridden by this host's, and then by the user's
// patches.
func ConfigYAML(env *step.Env) ([]byte, []kubeletconfig.Correction, error) {
	return configWith(env, config.PatchSet{})
}

// configWith returns the cluster's settings, overridden by own, fitted to this host, then overridden by users' patches.
func configWith(env *step.Env, own config.PatchSet) ([]byte, []kubeletconfig.Correction, error) {
	data, err := kubeletconfig.ConfigYAML(env.Config)
	if err != nil {
		return nil, nil, err
	}
	if data, err = own.Apply(config.PatchKubelet, data, kubeletconfig.New()); err != nil {
		return nil, nil, err
	}
	data, corrections, err := kubeletconfig.AdaptToHost(data, env.Config, ownFacts(env))
	if err != nil {
		return nil, nil, err
	}
	patches, err := env.Patches()
	if err != nil {
		return nil, nil, err
	}
	if data, err = patches.Apply(config.PatchKubelet, data, kubeletconfig.New()); err != nil {
		return nil, nil, err
	}
	data, err = env.Config.KubeletWithExtra(data)
	return data, corrections, err
}

// ownFacts returns this host's facts that the kubelet's settings depend on.
func ownFacts(env *step.Env) kubeletconfig.Own {
	own := kubeletconfig.Own{Exists: func(path string) bool {
		_, err := env.Host.Stat(path)
		return !errors.Is(err, fs.ErrNotExist) // a path that can't be looked at stays
	}}
	if join := env.Config.Join; join != nil {
		own.CAPath = join.CAPath
	} else if settings, err := thisnode.KubeletSettings(env.Host, env.Settings()); err == nil {
		own.CAPath = settings.Authentication.X509.ClientCAFile
	}
	return own
}

// warnCorrections warns of each of the cluster's settings that doesn't fit this host.
func warnCorrections(env *step.Env, corrections []kubeletconfig.Correction) {
	for _, c := range corrections {
		used := "does without"
		if c.Used != "" {
			used = "uses " + c.Used
		}
		env.UI.Warn(fmt.Sprintf("%s has %s: %q, which this host doesn't have: its kubelet %s", config.KubeletSource, c.Field, c.Stored, used),
			"take "+c.Field+" out of the ConfigMap if it isn't right for all nodes; a patch for target kubeletconfiguration (--patches) sets it on single ones")
	}
}
