// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// gateECDSA is a retired gate of stored configurations: the cluster's keys are ECDSA P-256. encryptionAlgorithm has replaced it.
const gateECDSA = "PublicKeysECDSA"

type featureGate struct {
	name    string
	preset  bool
	remarks string
}

// featureGates are kubeadm 1.37's. RootlessControlPlane runs the control plane's containers as non-root users.
func featureGates() []featureGate {
	return []featureGate{
		{"RootlessControlPlane", false, ", alpha"},
	}
}

// retiredGates are no longer in kubeadm 1.37, but older clusters still name them.
func retiredGates() []string {
	return []string{"ControlPlaneKubeletLocalMode", "EtcdLearnerMode", "NodeLocalCRISocket", gateECDSA, "WaitForAllControlPlaneComponents"}
}

func featureGateNames() []string {
	var names []string
	for _, g := range featureGates() {
		names = append(names, g.name)
	}
	return names
}

// FeatureGateNames lists the feature gates and their defaults, for help texts.
func FeatureGateNames() string {
	var list []string
	for _, g := range featureGates() {
		list = append(list, fmt.Sprintf("%s (%t by default%s)", g.name, g.preset, g.remarks))
	}
	return strings.Join(list, ", ")
}

// gateValues are the values of --feature-gates that flip each gate.
func gateValues() []string {
	var list []string
	for _, g := range featureGates() {
		list = append(list, fmt.Sprintf("%s=%t", g.name, !g.preset))
	}
	return list
}
