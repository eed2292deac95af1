// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phasetest has the stages and scenes on which the tests of packages below phases/ play: a host in a directory with an
// API that records (Stage), a whole node that can be killed at each of its steps (Scene), and the checks of their output. It
// imports only phases/step, so all packages above can use it.
package phasetest
