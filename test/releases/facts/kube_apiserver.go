// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhooks "k8s.io/apiserver/pkg/admission/plugin/webhook/config/apis/webhookadmission/install"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

func collect(f facts) {
	f.flags(app.NewAPIServerCommand().Flags())
	off := options.DefaultOffAdmissionPlugins()
	for _, name := range options.AllOrderedPlugins {
		f.set("admission", name, onOff(!off.Has(name)))
	}

	on := controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs
	f.versions(legacyscheme.Scheme, on, func(string) bool { return true })
	f.versions(apiextensions.Scheme, nil, func(group string) bool { return group == "apiextensions.k8s.io" })
	f.versions(aggregator.Scheme, nil, func(group string) bool { return group == "apiregistration.k8s.io" })

	files := runtime.NewScheme()
	install.Install(files)
	webhooks.Install(files)
	f.kinds("document", files, nil, every)
}

// versions adds the API versions of some groups of a scheme, and their kinds. A version is on or off by default, or "empty":
// the API server takes its name in --runtime-config, but serves nothing in it. Without a list, what is served is on.
func (f facts) versions(scheme *runtime.Scheme, on map[schema.GroupVersion]bool, wanted func(group string) bool) {
	served := f.kinds("kind", scheme, wanted, func(gv schema.GroupVersion) bool { _, offered := on[gv]; return offered || on == nil })
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		switch {
		case !wanted(gv.Group):
		case served[gv]:
			f.set("version", gv.String(), onOff(on[gv] || on == nil))
		default:
			f.set("version", gv.String(), "empty")
		}
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
