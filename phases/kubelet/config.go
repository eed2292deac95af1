// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ConfigYAML returns the kubelet's config.yaml: the cluster's settings, overridden by this host's, and then by the user's
// patches.
func ConfigYAML(env *step.Env) ([]byte, []kubeletconfig.Correction, error) {
	return node.KubeletConfigWith(env, config.PatchSet{})
}

// warnCorrected names the cluster's settings that this host can't use.
func warnCorrected(env *step.Env) error {
	_, corrections, err := ConfigYAML(env)
	node.SayCorrected(env, corrections)
	return err
}
