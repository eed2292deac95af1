// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

func newBundlePush(g *globals) *cobra.Command { return newBundleVerify(g) }
