// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Manifest is a component's static Pod before and after an upgrade. Before is nil if the file doesn't exist.
type Manifest struct {
	Path          string
	Before, After []byte
}

// Manifests returns this control plane's static Pods, now and as an upgrade would write them.
func Manifests(env *step.Env) ([]Manifest, error) {
	view, err := node.HostView(env)
	if err != nil {
		return nil, err
	}
	var list []Manifest
	for _, name := range upgradableComponents(env) {
		m := Manifest{Path: thisnode.StaticPodPath(env.Config, name)}
		if m.Before, err = host.ReadIfExists(env.Host, m.Path); err != nil {
			return nil, err
		}
		if m.After, err = node.StaticPodYAML(env, name, view, membersOf(env, name)); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
