// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const pinned = "../controllers"

func source(t *testing.T) string {
	t.Helper()
	dir, err := Source(t.Context(), pinned)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCRDs: the kinds that the scenarios use are converted by the controller that knows them, and have the contract's labels.
func TestCRDs(t *testing.T) {
	ca := []byte("the CA")
	all, err := CRDs(source(t), ca)
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for _, object := range all {
		crd := object.(*apiextensionsv1.CustomResourceDefinition)
		config := crd.Spec.Conversion.Webhook.ClientConfig
		if config.Service != nil || string(config.CABundle) != string(ca) {
			t.Errorf("%s is converted by %+v", crd.Name, config)
		}
		urls[crd.Name] = *config.URL
		for _, contract := range []string{"v1beta1", "v1beta2"} {
			served := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == contract })
			if crd.Labels["cluster.x-k8s.io/"+contract] != contract || !served && !strings.Contains(crd.Name, ".runtime.") {
				t.Errorf("%s has the labels %v", crd.Name, crd.Labels)
			}
		}
	}
	for name, port := range map[string]int{
		"clusters.cluster.x-k8s.io": 9443, "machines.cluster.x-k8s.io": 9443, "machinesets.cluster.x-k8s.io": 9443,
		"machinedeployments.cluster.x-k8s.io": 9443, "machinehealthchecks.cluster.x-k8s.io": 9443,
		"kubeadmconfigs.bootstrap.cluster.x-k8s.io": 9444, "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io": 9444,
		"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io": 9445,
	} {
		if want := fmt.Sprintf("https://127.0.0.1:%d/convert", port); urls[name] != want {
			t.Errorf("%s is converted at %q, want %s", name, urls[name], want)
		}
	}
}

// TestWebhooks: each controller has its own registrations, which lead to it and to no Service.
func TestWebhooks(t *testing.T) {
	ca := []byte("the CA")
	all, err := Webhooks(source(t), ca)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, object := range all {
		configs := map[string]admissionv1.WebhookClientConfig{}
		switch r := object.(type) {
		case *admissionv1.MutatingWebhookConfiguration:
			found["mutating "+r.Name] = true
			for _, w := range r.Webhooks {
				configs[w.Name] = w.ClientConfig
			}
		case *admissionv1.ValidatingWebhookConfiguration:
			found["validating "+r.Name] = true
			for _, w := range r.Webhooks {
				configs[w.Name] = w.ClientConfig
			}
		}
		at := slices.IndexFunc(Controllers, func(c Controller) bool { return object.GetName() == "capi-"+c.Name })
		begin := Controllers[max(at, 0)].url("/")
		for name, config := range configs {
			if at < 0 || config.Service != nil || config.URL == nil || !strings.HasPrefix(*config.URL, begin) || string(config.CABundle) != string(ca) {
				t.Errorf("%s of %s is called by %+v", name, object.GetName(), config)
			}
		}
	}
	want := []string{
		"mutating capi-bootstrap", "mutating capi-control-plane", "mutating capi-core",
		"validating capi-bootstrap", "validating capi-control-plane", "validating capi-core",
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("the registrations are %q, want %q", got, want)
	}
}

// TestPorts: the controllers share a machine.
func TestPorts(t *testing.T) {
	used := map[string]string{}
	for _, c := range Controllers {
		for _, arg := range c.Args("/certs") {
			_, port, isPort := strings.Cut(arg[strings.Index(arg, "=")+1:], ":")
			if name, value, _ := strings.Cut(arg, "="); name == "--webhook-port" {
				port, isPort = value, true
			}
			if other := used[port]; isPort && other != "" {
				t.Errorf("%s and %s use port %s", other, c.Name, port)
			}
			used[port] = c.Name
		}
	}
}
