// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reset takes a node out of its cluster (reset): etcd member, Pods, files, and the Pod network's traces in the kernel.
package reset
