// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps the state of a node from before an upgrade: static Pods, the kubelet's files and a snapshot of etcd. It also
// tells whose a file is, Slipway's or an operator's, by the records of these backups.
package backup
