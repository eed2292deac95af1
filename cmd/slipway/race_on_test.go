// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package main

// raceDetector makes every run some ten times as long.
const raceDetector = true
