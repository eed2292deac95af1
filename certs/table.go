// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package certs has the table of a cluster's certificates (Table, Specs). It makes keys and certificates (NewKey, NewCA, Issue)
// and checks them (Check, Faults). It does no I/O: the clock is an argument. internal/pki reads and writes the files;
// internal/kubeconfig puts certificates into kubeconfig files.
package certs

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Spec is a row of the certificate table.
type Spec struct {
	// Name is unique: "ca", "apiserver", "admin.conf". It's also the argument of `certs renew`.
	Name string
	// Summary describes the certificate's purpose in a few words: "client certificate for etcd health checks".
	Summary string
	// File is the path below the PKI directory without extension: "etcd/server"; empty for a certificate in a kubeconfig file.
	File string
	// Kubeconfig is the name of the kubeconfig file with the certificate and its key; empty if File is set.
	Kubeconfig string
	CA         string // the Name of the issuing row; empty for a CA, which signs itself
	// UsedBy is the component that reads the private key, if any: it restarts after a renewal. If it's rootless, its user owns the key.
	UsedBy string
	// FirstOnly marks certificates that only a cluster's first control plane has.
	FirstOnly bool

	CommonName   string
	Organization []string
	// DNSNames and IPs are the subject alternative names: DNS names in alphabetical order, addresses in order of their sources.
	DNSNames []string
	IPs      []netip.Addr
	// Usages are the extended key usages. A CA has none.
	Usages []x509.ExtKeyUsage
}

func (s Spec) IsCA() bool { return s.CA == "" }

// Renewable reports whether `certs renew` renews it. CAs are never replaced, and the kubelet renews its own certificate.
func (s Spec) Renewable() bool { return !s.IsCA() && s.UsedBy != config.KubeletComponent }

// OnJoin reports whether a joining control plane issues it. It shares the CAs, and the cluster's CSR API signs for its kubelet.
func (s Spec) OnJoin() bool { return s.Renewable() && !s.FirstOnly }

// Phase is the phase of init that issues the certificate, as an argument of `init phase`: "certs apiserver", "kubeconfig admin".
func (s Spec) Phase() string {
	if s.Kubeconfig != "" {
		return "kubeconfig " + strings.TrimSuffix(s.Kubeconfig, ".conf")
	}
	return "certs " + s.Name
}

func (s Spec) CertFile() string { return s.File + ".crt" }

func (s Spec) KeyFile() string { return s.File + ".key" }

// Table returns every row, each CA before its certificates. Names that depend on a node are missing.
func Table() []Spec {
	rows := make([]Spec, len(table))
	for i, r := range table {
		rows[i] = r.Spec
	}
	return rows
}

// Specs returns the rows of control plane node n, each CA before its certificates. With an external etcd there are no rows for
// etcd: its operator issues the API server's client certificate.
func Specs(n *config.Node) []Spec {
	var rows []Spec
	for _, r := range table {
		if n.Cluster.Etcd.External != nil && (r.Name == EtcdCA || r.CA == EtcdCA) {
			continue
		}
		if r.on != nil {
			r.on(&r.Spec, n)
		}
		rows = append(rows, r.Spec)
	}
	return rows
}

// Find returns a row by its name; found is false if node n has no such certificate.
func Find(n *config.Node, name string) (s Spec, found bool) {
	rows := Specs(n)
	i := slices.IndexFunc(rows, func(s Spec) bool { return s.Name == name })
	if i < 0 {
		return Spec{}, false
	}
	return rows[i], true
}

// nameAPIServer adds the names by which Pods, nodes and people reach the API server.
func nameAPIServer(spec *Spec, n *config.Node) {
	var s sans
	s.add(n.Name, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc."+n.Cluster.Networking.DNSDomain)
	s.addIP(n.APIServiceIP())
	s.addIP(n.AdvertiseAddress)
	if host := n.EndpointHost(); host != "" {
		s.add(host)
	}
	s.add(n.Cluster.APIServer.CertSANs...)
	s.setOn(spec)
}

func nameEtcdServer(spec *Spec, n *config.Node) { nameEtcd(spec, n, localEtcd(n).ServerCertSANs) }

func nameEtcdPeer(spec *Spec, n *config.Node) { nameEtcd(spec, n, localEtcd(n).PeerCertSANs) }

// nameEtcd adds the names by which members and clients reach this node's etcd.
func nameEtcd(spec *Spec, n *config.Node, extra []string) {
	var s sans
	s.add(n.Name, "localhost")
	s.addIP(n.AdvertiseAddress)
	s.addIP(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	s.addIP(netip.IPv6Loopback())
	s.add(extra...)
	spec.CommonName = n.Name
	s.setOn(spec)
}

func localEtcd(n *config.Node) config.LocalEtcd {
	if n.Cluster.Etcd.Local == nil {
		return config.LocalEtcd{}
	}
	return *n.Cluster.Etcd.Local
}

// sans collects subject alternative names without duplicates.
type sans struct {
	names []string
	ips   []netip.Addr
}

// add sorts list into addresses and names. DNS names are compared without case (RFC 4343), so it keeps them in lower case.
func (s *sans) add(list ...string) {
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil {
			s.addIP(ip)
			continue
		}
		name := strings.ToLower(text)
		if !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
}

func (s *sans) addIP(ip netip.Addr) {
	// A certificate doesn't distinguish an IPv4 address from the same address mapped to IPv6.
	ip = ip.Unmap().WithZone("")
	if !slices.Contains(s.ips, ip) {
		s.ips = append(s.ips, ip)
	}
}

// setOn puts the names into a row, sorted.
func (s *sans) setOn(spec *Spec) {
	slices.Sort(s.names)
	spec.DNSNames, spec.IPs = s.names, s.ips
}

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
