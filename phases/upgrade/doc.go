// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade has the workflows upgrade apply (Apply) and upgrade node (Node): findings before anything changes, the turn
// among control planes, the swap of static Pods, add-ons, and draining. Package rollback has the way back.
package upgrade
