// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package step has the parts that every phase is made of: the environment that it works in, and the way to run a list of them.
package step
