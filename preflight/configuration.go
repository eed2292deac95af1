// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import "context"

// Configuration is the check that a control plane which is here already was
// made with the configuration that is asked for now. differences tells in what
// it was not.
func Configuration(differences func(context.Context) []string) Check {
	return Check{
		Name: "Configuration",
		Asks: "a control plane that is here already was made with the same configuration: the kubelet's files, certificates, kubeconfig files, ConfigMap kubeadm-config; what was edited since stays",
		Run: func(ctx context.Context, _ View) []Finding {
			var found []Finding
			for _, text := range differences(ctx) {
				found = append(found, Finding{Severity: Error, Message: text})
			}
			return found
		},
	}
}
