// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollback puts back a node's state from before an upgrade, with etcd's data if asked.
package rollback
