// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig writes, reads and checks a node's kubeconfig files, each described by a row of certs.Table. It does no I/O.
package kubeconfig

import (
	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Spec describes a kubeconfig file: who it authenticates, and to which server.
type Spec struct {
	// Certificate is the client certificate's row. Its common name is also the user's name in the file.
	Certificate certs.Spec
	Server      string
}

// File is the file's name below the directory of kubeconfig files.
func (s Spec) File() string { return s.Certificate.Kubeconfig }

// SpecOf returns a row's kubeconfig file. People reach the API at the cluster's endpoint. The node's components use its own API
// server, so that during an upgrade they don't talk to an older one.
func SpecOf(n *config.Node, row certs.Spec) Spec {
	server := n.Endpoint()
	if row.UsedBy != "" {
		server = n.LocalEndpoint()
	}
	return Spec{Certificate: row, Server: "https://" + server}
}
