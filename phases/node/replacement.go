// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// Replacement is a component of this control plane with its present and its next manifest. They're the same if the component only
// has to restart. Lists of Replacements begin with etcd and the API server.
type Replacement struct {
	Name   string
	Wanted []byte // the next manifest
	Before []byte // the present manifest; nil for none
	// Stale are the running containers that weren't made from Wanted, or that started with older certificates.
	Stale []host.Container
	// answered reports whether it was healthy after it had started with Wanted.
	answered bool
}

// HasComponent reports whether a component is in the list.
func HasComponent(components []Replacement, name string) bool {
	return slices.ContainsFunc(components, named(name))
}

func named(name string) func(Replacement) bool {
	return func(c Replacement) bool { return c.Name == name }
}

// NamesOf joins the components' names for a message: "etcd and kube-apiserver".
func NamesOf(components []Replacement) string {
	var names []string
	for _, c := range components {
		names = append(names, c.Name)
	}
	return strings.Join(names, " and ")
}

// ImagesOf joins the images of the next manifests for a message, separated by commas.
func ImagesOf(components []Replacement) string {
	var images []string
	for _, c := range components {
		images = append(images, manifests.ImageOf(c.Wanted))
	}
	return strings.Join(images, ", ")
}

// SplitAPIClients separates the components of the API from its clients, which restart after it. It returns no empty group.
func SplitAPIClients(components []Replacement) [][]Replacement {
	var api, clients []Replacement
	for _, c := range components {
		if TakesAPIAway(c) {
			api = append(api, c)
		} else {
			clients = append(clients, c)
		}
	}
	return slices.DeleteFunc([][]Replacement{api, clients}, func(group []Replacement) bool { return len(group) == 0 })
}

// TakesAPIAway reports whether the API is away while a component restarts.
func TakesAPIAway(c Replacement) bool {
	return c.Name == manifests.EtcdName || c.Name == manifests.APIServerName
}
