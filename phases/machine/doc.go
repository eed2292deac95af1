// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine makes a bare host ready to become a node (host prepare): programs, container runtime, kernel settings, swap,
// images. It records all its changes, and takes exactly those back (host reset).
package machine
