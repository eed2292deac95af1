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

	versions := controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs
	f.versions(legacyscheme.Scheme, func(gv schema.GroupVersion) (known, on bool) { on, known = versions[gv]; return known, on })
	f.versions(apiextensions.Scheme, func(gv schema.GroupVersion) (known, on bool) { return gv.Group == "apiextensions.k8s.io", true })
	f.versions(aggregator.Scheme, func(gv schema.GroupVersion) (known, on bool) { return gv.Group == "apiregistration.k8s.io", true })

	files := runtime.NewScheme()
	install.Install(files)
	webhooks.Install(files)
	f.kinds("document", files, nil)
}

// versions adds the API versions that are known, and their kinds. A version is on or off by default, or "empty": known,
// but nothing in it is served any more.
func (f facts) versions(scheme *runtime.Scheme, of func(schema.GroupVersion) (known, on bool)) {
	served := f.kinds("kind", scheme, func(gv schema.GroupVersion) bool { known, _ := of(gv); return known })
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		known, on := of(gv)
		switch {
		case known && served[gv]:
			f.set("version", gv.String(), onOff(on))
		case known:
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
