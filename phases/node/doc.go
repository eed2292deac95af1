// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package node has the parts of a control plane's node that several workflows change: its static Pods (replace, stop, restart,
// await, put back), the kubelet's unit, the local etcd member's files, and the turn (Lease) that a control plane takes before it
// stops any of them. Nothing here stops an etcd member that the others need: see SpareEtcd.
package node
