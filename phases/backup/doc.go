// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps a node's state from before an upgrade: static Pods, the kubelet's files and a snapshot of etcd. From its
// records, it also tells whose a file is, Slipway's or an operator's.
package backup
