// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap has the workflows init (Init) and join (Join), and their phases.
package bootstrap
