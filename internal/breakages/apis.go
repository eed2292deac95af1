// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// APIUse is an API version in use: by objects stored in it, or by a client that writes in it.
type APIUse struct {
	Where      string // for people: Workload default/train
	APIVersion string // as in the object: scheduling.k8s.io/v1alpha2
	Kind       string
	// Manager is the client that wrote in this version, from managedFields; empty if objects are stored in it.
	Manager string
}

// apiUse finds API versions the API server doesn't serve any more. It can't list or delete objects in versions it can't read.
func (c *checker) apiUse() {
	for _, use := range c.APIUse {
		if !releases.EverHadKind(use.APIVersion, use.Kind) {
			continue // of a custom resource or an aggregated API server
		}
		if before, known := c.before.Kind(use.APIVersion, use.Kind); c.before.Known() && (!known || !before.Served && use.Manager != "") {
			continue // an old trace: it was like this before the upgrade
		}
		kind, known := c.release.Kind(use.APIVersion, use.Kind)
		f := fault.Finding{Subject: use.Where, Field: use.APIVersion + " " + use.Kind}
		switch {
		case use.Manager == "" && !known:
			f.Name, f.Severity = "api-stored", fault.Error
			f.Message = fmt.Sprintf("%s is stored in %s, which Kubernetes %s cannot read", use.Where, use.APIVersion, c.release.Minor)
			f.Remedy = "delete the objects before the upgrade, and recreate them in a newer version"
		case use.Manager != "" && !kind.Served:
			f.Name = "api-managed-fields"
			f.Field += " " + use.Manager
			f.Message = fmt.Sprintf("%s: %s writes %s in %s, which Kubernetes %s does not serve", use.Where, use.Manager, use.Kind, use.APIVersion, c.release.Minor)
			f.Remedy = "upgrade " + use.Manager + ", or change it to use " + orNewer(kind.Replacement)
		default:
			continue
		}
		c.add(f)
	}
}

func orNewer(replacement string) string {
	if replacement == "" {
		return "a newer API version"
	}
	apiVersion, _, _ := strings.Cut(replacement, " ")
	return apiVersion
}

// requestedMetric counts requests for deprecated APIs. It's empty after each start of the API server.
const requestedMetric = "apiserver_requested_deprecated_apis"

// requests finds requests for APIs this release doesn't serve, in the API servers' metrics.
func (c *checker) requests() {
	for _, m := range c.Metrics {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(m.Data))
		if err != nil {
			c.add(fault.Finding{Name: NotChecked, Subject: m.Where, Field: "metrics",
				Message: fmt.Sprintf("%s: cannot read its metrics; requests for deprecated APIs were not checked: %v", m.Where, err),
				Remedy:  "look at them yourself: kubectl get --raw /metrics"})
			continue
		}
		family := families[requestedMetric]
		for _, metric := range family.GetMetric() {
			c.request(m.Where, metric)
		}
	}
}

func (c *checker) request(where string, metric *dto.Metric) {
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	removed := labels["removed_release"]
	if metric.GetGauge().GetValue() == 0 || releases.MinorOf(removed) == "" || releases.Less(c.release.Minor, removed) {
		return
	}
	resource := strings.Join(slices.DeleteFunc([]string{labels["group"], labels["version"], labels["resource"], labels["subresource"]},
		func(s string) bool { return s == "" }), "/")
	c.add(fault.Finding{Name: "api-requested", Subject: where, Field: resource,
		Message: fmt.Sprintf("%s: clients have requested %s, which Kubernetes %s does not serve", where, resource, removed),
		Remedy:  "find them in the audit log (annotation k8s.io/removed-release), and upgrade or change them"})
}
