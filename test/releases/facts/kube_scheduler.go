// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

func collect(f facts) {
	f.flags(app.NewSchedulerCommand().Flags())
	f.kinds("document", scheme.Scheme, nil, every)
}
