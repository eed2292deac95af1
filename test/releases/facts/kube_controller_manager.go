// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import "k8s.io/kubernetes/cmd/kube-controller-manager/app"

func collect(f facts) { f.flags(app.NewControllerManagerCommand().Flags()) }
