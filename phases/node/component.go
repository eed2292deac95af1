// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

func Contains(components []ComponentUpgrade, name string) bool {
	return slices.ContainsFunc(components, named(name))
}

func named(name string) func(ComponentUpgrade) bool {
	return func(c ComponentUpgrade) bool { return c.Name == name }
}

// ComponentUpgrade is a component with its next manifest.
type ComponentUpgrade struct {
	Name   string
	Wanted []byte // the next manifest
	Before []byte // the present manifest; nil for none
	// Stale are the running containers that weren't made from Wanted.
	Stale []host.Container
	// answered reports whether it was healthy after it had started with Wanted.
	answered bool
}

// Split separates the components of the API from its clients.
func Split(components []ComponentUpgrade) (api, clients []ComponentUpgrade) {
	for _, c := range components {
		if c.Name == manifests.EtcdName || c.Name == manifests.APIServerName {
			api = append(api, c)
		} else {
			clients = append(clients, c)
		}
	}
	return api, clients
}
