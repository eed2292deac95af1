// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Names of rows used elsewhere.
const (
	CA                  = "ca"
	FrontProxyCA        = "front-proxy-ca"
	EtcdCA              = "etcd-ca"
	APIServer           = "apiserver"
	APIServerEtcdClient = "apiserver-etcd-client"
	Admin               = "admin.conf"
	Kubelet             = "kubelet.conf"
)

// The key pair that signs service account tokens is below the PKI directory, too, but has no certificate.
const (
	ServiceAccount          = "sa"
	ServiceAccountKey       = ServiceAccount + ".key"
	ServiceAccountPublicKey = ServiceAccount + ".pub"
)

// row is a line of the table. on fills in the node's own values: the subject and the alternative names.
type row struct {
	Spec
	on func(s *Spec, n *config.Node)
}

var (
	server = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both   = slices.Concat(server, client)
)

// table has one row for each certificate, each CA before its certificates. The rows follow
// https://kubernetes.io/docs/setup/best-practices/certificates/.
var table = []row{
	{Spec: Spec{
		Name: CA, File: "ca", Summary: "CA of the cluster",
		CommonName: "kubernetes", DNSNames: []string{"kubernetes"}, UsedBy: config.ControllerManagerComponent,
	}},
	{Spec: Spec{
		Name: APIServer, File: "apiserver", CA: CA, Summary: "serving certificate of the API server",
		CommonName: "kube-apiserver", Usages: server, UsedBy: config.APIServerComponent,
	}, on: nameAPIServer},
	{Spec: Spec{
		Name: "apiserver-kubelet-client", File: "apiserver-kubelet-client", CA: CA,
		Summary:    "client certificate of the API server for kubelets",
		CommonName: "kube-apiserver-kubelet-client", Usages: client, UsedBy: config.APIServerComponent,
	}},
	{Spec: Spec{
		Name: FrontProxyCA, File: "front-proxy-ca", Summary: "CA of the API aggregation layer",
		CommonName: "front-proxy-ca", DNSNames: []string{"front-proxy-ca"},
	}},
	{Spec: Spec{
		Name: "front-proxy-client", File: "front-proxy-client", CA: FrontProxyCA,
		Summary:    "client certificate of the API server for extension API servers",
		CommonName: "front-proxy-client", Usages: client, UsedBy: config.APIServerComponent,
	}},
	{Spec: Spec{
		Name: EtcdCA, File: "etcd/ca", Summary: "CA of etcd", CommonName: "etcd-ca", DNSNames: []string{"etcd-ca"},
	}},
	{Spec: Spec{
		Name: "etcd-server", File: "etcd/server", CA: EtcdCA, Summary: "serving certificate of etcd",
		Usages: both, UsedBy: config.EtcdComponent,
	}, on: nameEtcdServer},
	{Spec: Spec{
		Name: "etcd-peer", File: "etcd/peer", CA: EtcdCA, Summary: "peer certificate of etcd",
		Usages: both, UsedBy: config.EtcdComponent,
	}, on: nameEtcdPeer},
	{Spec: Spec{
		Name: "etcd-healthcheck-client", File: "etcd/healthcheck-client", CA: EtcdCA,
		Summary:    "client certificate for etcd health checks",
		CommonName: "kube-etcd-healthcheck-client", Usages: client,
	}},
	{Spec: Spec{
		Name: APIServerEtcdClient, File: "apiserver-etcd-client", CA: EtcdCA,
		Summary:    "client certificate of the API server for etcd",
		CommonName: "kube-apiserver-etcd-client", Usages: client, UsedBy: config.APIServerComponent,
	}},
	{Spec: Spec{
		Name: Admin, Kubeconfig: "admin.conf", CA: CA, Summary: "client certificate of the cluster administrator",
		CommonName: "kubernetes-admin", Organization: []string{"kubeadm:cluster-admins"}, Usages: client,
	}},
	{Spec: Spec{
		Name: "super-admin.conf", Kubeconfig: "super-admin.conf", CA: CA, FirstOnly: true,
		Summary:    "client certificate of an administrator who bypasses RBAC",
		CommonName: "kubernetes-super-admin", Organization: []string{"system:masters"}, Usages: client,
	}},
	{Spec: Spec{
		Name: Kubelet, Kubeconfig: "kubelet.conf", CA: CA, Summary: "first client certificate of the kubelet",
		Organization: []string{"system:nodes"}, Usages: client, UsedBy: config.KubeletComponent,
	}, on: func(s *Spec, n *config.Node) { s.CommonName = "system:node:" + n.Name }},
	{Spec: Spec{
		Name: "controller-manager.conf", Kubeconfig: "controller-manager.conf", CA: CA,
		Summary:    "client certificate of the controller manager",
		CommonName: "system:kube-controller-manager", Usages: client, UsedBy: config.ControllerManagerComponent,
	}},
	{Spec: Spec{
		Name: "scheduler.conf", Kubeconfig: "scheduler.conf", CA: CA, Summary: "client certificate of the scheduler",
		CommonName: "system:kube-scheduler", Usages: client, UsedBy: config.SchedulerComponent,
	}},
}
