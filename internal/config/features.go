// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// The feature gates of kubeadm 1.36.
const (
	// NodeLocalCRISocket keeps the runtime's socket in a file of the node
	// rather than in an annotation of its Node object. On by default.
	NodeLocalCRISocket = "NodeLocalCRISocket"
	// PublicKeysECDSA makes ECDSA-P256 keys. Deprecated for
	// encryptionAlgorithm.
	PublicKeysECDSA = "PublicKeysECDSA"
	// RootlessControlPlane runs the control plane's containers as users of
	// their own.
	RootlessControlPlane = "RootlessControlPlane"
)

// featureGate is one gate with what holds where the user does not name it.
type featureGate struct {
	name    string
	preset  bool
	remarks string
}

func featureGates() []featureGate {
	return []featureGate{
		{NodeLocalCRISocket, true, ""},
		{PublicKeysECDSA, false, ", deprecated"},
		{RootlessControlPlane, false, ", alpha"},
	}
}

func featureGateNames() []string {
	var names []string
	for _, g := range featureGates() {
		names = append(names, g.name)
	}
	return names
}

// FeatureGateNames lists the feature gates and their defaults for help texts.
func FeatureGateNames() string {
	var list []string
	for _, g := range featureGates() {
		list = append(list, fmt.Sprintf("%s (%t by default%s)", g.name, g.preset, g.remarks))
	}
	return strings.Join(list, ", ")
}

// Feature tells whether a feature gate of the cluster is on.
func (n *Node) Feature(name string) bool {
	if on, given := n.Cluster.FeatureGates[name]; given {
		return on
	}
	for _, g := range featureGates() {
		if g.name == name {
			return g.preset
		}
	}
	return false
}
