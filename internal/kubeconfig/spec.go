// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig is the table of a node's kubeconfig files, and how its
// rows are written and checked: bytes in, bytes out.
//
// The rows follow https://kubernetes.io/docs/setup/best-practices/certificates/.
package kubeconfig

import (
	"crypto/x509"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Spec is a row of the table: who a kubeconfig file speaks for, and to whom.
type Spec struct {
	// Name is the phase: "admin", "super-admin", "kubelet".
	Name string
	// File is the name below the folder of kubeconfig files. It is also the
	// argument of `certs renew`.
	File string
	// CommonName and Organization are the user and groups that the API server
	// sees.
	CommonName   string
	Organization []string
	// Server is the URL of the API.
	Server string
}

// Specs returns the rows of a control plane node. People reach the API by the
// cluster's endpoint; the node's own components keep to its own API server,
// so that during an upgrade none talks to an older one.
func Specs(n *config.Node) []Spec {
	cluster, local := "https://"+n.Endpoint(), "https://"+n.LocalEndpoint()
	return []Spec{
		{
			Name: "admin", File: "admin.conf", Server: cluster,
			CommonName: "kubernetes-admin", Organization: []string{"kubeadm:cluster-admins"},
		},
		{
			Name: "super-admin", File: "super-admin.conf", Server: cluster,
			CommonName: "kubernetes-super-admin", Organization: []string{"system:masters"},
		},
		{
			Name: "kubelet", File: "kubelet.conf", Server: local,
			CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"},
		},
		{
			Name: "controller-manager", File: "controller-manager.conf", Server: local,
			CommonName: "system:kube-controller-manager",
		},
		{
			Name: "scheduler", File: "scheduler.conf", Server: local,
			CommonName: "system:kube-scheduler",
		},
	}
}

// Certificate is the client certificate that the file holds.
func (s Spec) Certificate() certs.Spec {
	return certs.Spec{
		Name: s.File, CA: certs.CA,
		CommonName: s.CommonName, Organization: s.Organization,
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
