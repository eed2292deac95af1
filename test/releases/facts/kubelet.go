// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"reflect"

	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app" // registers feature gates
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

func collect(f facts) {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(fs)
	options.AddKubeletConfigFlags(fs, &config.KubeletConfiguration{})
	options.AddGlobalFlags(fs)
	f.flags(fs)
	files, _, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		panic(err)
	}
	f.kinds("document", files, nil, every)
	f.fields("", reflect.TypeFor[v1beta1.KubeletConfiguration]())
}
