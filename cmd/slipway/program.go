// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !man

package main

import "os"

func main() { os.Exit(run()) }
