// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"reflect"

	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func collect(f facts) {
	f.flags(app.NewProxyCommand().Flags())
	f.fields("", reflect.TypeFor[v1alpha1.KubeProxyConfiguration]())
}
