// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package step has the parts of every phase: the environment it works in, and the way to run a list of phases.
package step
