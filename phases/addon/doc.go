// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package addon installs and upgrades the add-ons: CoreDNS, kube-proxy and the Pod network.
package addon
