// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet has the phases that configure and start the kubelet, and wait until it has registered its Node and runs Pods.
package kubelet
