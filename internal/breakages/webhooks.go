// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Webhook holds the checked fields of mutating and validating admission webhooks of admissionregistration.k8s.io/v1. The types of
// k8s.io/api would make the program 1 % larger.
type Webhook struct {
	Where             string                `json:"-"` // for people: webhook pods.example.com of ValidatingWebhookConfiguration example
	Name              string                `json:"name"`
	FailurePolicy     string                `json:"failurePolicy"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	Rules             []WebhookRule         `json:"rules"`
}

type WebhookRule struct {
	Operations []string `json:"operations"`
	APIGroups  []string `json:"apiGroups"`
	Resources  []string `json:"resources"`
	Scope      string   `json:"scope"`
}

// needed lists the resources an upgrade writes in kube-system: mirror Pods, leaders' Leases, CoreDNS's and kube-proxy's objects.
var needed = []struct{ group, resource string }{
	{"", "pods"}, {"coordination.k8s.io", "leases"}, {"", "configmaps"}, {"", "secrets"}, {"apps", "daemonsets"}, {"apps", "deployments"},
	{"", "services"}, {"", "serviceaccounts"},
}

// webhook finds webhooks that must answer before something in kube-system can be written. If the webhook's Pod needs the
// restarting component, neither comes up.
func (c *checker) webhook(w Webhook) {
	if w.FailurePolicy == "Ignore" || !w.selects(c.systemLabels()) {
		return
	}
	for _, n := range needed {
		if !slices.ContainsFunc(w.Rules, func(r WebhookRule) bool { return r.matches(n.group, n.resource) }) {
			continue
		}
		c.add(fault.Finding{Name: "webhook-blocks-system", Subject: w.Where, Field: "namespaceSelector",
			Message: fmt.Sprintf("%s: if it does not answer, nothing can write %s in kube-system (failurePolicy Fail)", w.Where, n.resource),
			Remedy:  "exclude kube-system with its namespaceSelector, or set failurePolicy: Ignore during the upgrade"})
		return
	}
}

// selects reports whether the webhook is asked about a namespace with these labels. An unreadable selector counts as a match.
func (w Webhook) selects(namespace map[string]string) bool {
	if w.NamespaceSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	return err != nil || selector.Matches(labels.Set(namespace))
}

func (r WebhookRule) matches(group, resource string) bool {
	return containsAny(r.Operations, "CREATE", "UPDATE", "*") && r.Scope != "Cluster" &&
		containsAny(r.APIGroups, group, "*") && containsAny(r.Resources, resource, "*", "*/*")
}
