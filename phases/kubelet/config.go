// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ConfigYAML is the kubelet's config.yaml: the cluster's settings, those of this host over them, and then the user's
// patches.
func ConfigYAML(env *step.Env) ([]byte, []kubeletconfig.Correction, error) {
	return node.KubeletConfigWith(env, config.PatchSet{})
}

// warnCorrected says which of the cluster's settings this host cannot use.
func warnCorrected(env *step.Env) error {
	_, corrections, err := ConfigYAML(env)
	node.SayCorrected(env, corrections)
	return err
}
