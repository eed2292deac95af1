// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Configuration checks that an existing control plane was made with this run's configuration. differences lists the differences.
func Configuration(differences func(context.Context) []fault.Fault) Check {
	return Check{
		Name: "Configuration",
		Asks: "an existing control plane was made with the same configuration: the kubelet's files, certificates, kubeconfig files, ConfigMap kubeadm-config; later edits stay",
		Run: func(ctx context.Context, _ View) []Finding {
			var found []Finding
			for _, d := range differences(ctx) {
				found = append(found, Finding{Severity: Error, Fault: d})
			}
			return found
		},
	}
}
