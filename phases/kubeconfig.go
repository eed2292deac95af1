// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"slices"

	"github.com/slipway-k8s/slipway/certs"
)

func kubeconfigs() Phase {
	flags := []string{"apiserver-advertise-address", "apiserver-bind-port", "cert-dir", "config", "control-plane-endpoint",
		"dry-run", "kubeconfig-dir", "kubernetes-version"}
	withNodeName := append(slices.Clone(flags), "node-name")
	p := Phase{
		Name:       "kubeconfig",
		Summary:    "Write the kubeconfig files of the components and the administrator",
		Flags:      withNodeName,
		SideBySide: true,
	}
	for _, row := range certs.Table() {
		if row.Kubeconfig == "" {
			continue
		}
		child := ensures(row)
		child.Summary, child.Flags = "Write "+row.Kubeconfig+" with the "+row.Summary, flags
		if row.Name == certs.Kubelet {
			child.Flags = withNodeName
		}
		p.Children = append(p.Children, child)
	}
	return p
}
