// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

// Versions of what a control plane of Kubernetes 1.35 or 1.36 is made of.
const (
	DefaultKubernetesVersion = "v1.36.3"

	etcdTag    = "3.6.8-0"
	coreDNSTag = "v1.14.2"
	pauseTag   = "3.10.2"
)
