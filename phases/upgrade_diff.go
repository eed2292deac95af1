// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// Manifest is the static Pod of a component, before and after an upgrade. Before is nil for one that is not there.
type Manifest struct {
	Path          string
	Before, After []byte
}

// UpgradedManifests returns this control plane's static Pods, as they are and as an upgrade would write them.
func UpgradedManifests(env *Env) ([]Manifest, error) {
	view, err := hostView(env)
	if err != nil {
		return nil, err
	}
	var list []Manifest
	for _, name := range upgradableComponents(env) {
		m := Manifest{Path: thisnode.StaticPodPath(env.Config, name)}
		if m.Before, err = host.ReadIfExists(env.Host, m.Path); err != nil {
			return nil, err
		}
		if m.After, err = staticPodYAML(env, name, view, membersOf(env, name)); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
