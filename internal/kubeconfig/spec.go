// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig writes, reads and checks a node's kubeconfig files. It does no I/O. What each file holds is a row
// of the certificate table, certs.Table.
package kubeconfig

import (
	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Spec describes a kubeconfig file: who it authenticates, and to which server.
type Spec struct {
	// Certificate is the row of the client certificate. Its common name is also the name of the user in the file.
	Certificate certs.Spec
	// Server is the URL of the API.
	Server string
}

// File is the name of the file below the directory of kubeconfig files.
func (s Spec) File() string { return s.Certificate.Kubeconfig }

// SpecOf returns the kubeconfig file that a row of the certificate table lives in. People reach the API at the endpoint
// of the cluster. The node's components use the API server of their own node, so that during an upgrade none of them
// talks to an older one.
func SpecOf(n *config.Node, row certs.Spec) Spec {
	server := n.Endpoint()
	if row.UsedBy != "" {
		server = n.LocalEndpoint()
	}
	return Spec{Certificate: row, Server: "https://" + server}
}
