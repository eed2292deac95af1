// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reset takes a node out of its cluster (reset): the etcd member, Pods, files, and what the Pod network left in the kernel.
package reset
