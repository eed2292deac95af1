// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine turns a bare host into one that can become a node (host prepare): programs, container runtime, kernel settings,
// swap, images. It records everything it changes, and takes exactly that back (host reset).
package machine
