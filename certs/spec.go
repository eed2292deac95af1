// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package certs is the certificate table of a node, and how its rows are
// issued, encoded and checked. Everything here is bytes in, bytes out: the
// clock and the source of randomness are arguments.
//
// The rows follow https://kubernetes.io/docs/setup/best-practices/certificates/.
package certs

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Names of the rows that others refer to. They are also the names of the
// phases and the arguments of `certs renew`.
const (
	CA           = "ca"
	FrontProxyCA = "front-proxy-ca"
	EtcdCA       = "etcd-ca"
)

// Spec is a row of the certificate table: what one certificate shall be.
type Spec struct {
	// Name is unique: "ca", "apiserver", "etcd-server".
	Name string
	// File is the path below the PKI folder without extension: "etcd/server".
	// Empty for a certificate that lives inside a kubeconfig file.
	File string
	// CA is the Name of the issuing row. A CA, which signs itself, has none.
	CA string

	CommonName   string
	Organization []string
	// DNSNames and IPs are the subject alternative names: the names in order
	// of the alphabet, the addresses in order of their sources.
	DNSNames []string
	IPs      []netip.Addr
	// Usages are the extended key usages. A CA has none.
	Usages []x509.ExtKeyUsage
}

// IsCA tells whether the row is a certificate authority.
func (s Spec) IsCA() bool { return s.CA == "" }

// CertFile is the certificate's path below the PKI folder.
func (s Spec) CertFile() string { return s.File + ".crt" }

// KeyFile is the private key's path below the PKI folder.
func (s Spec) KeyFile() string { return s.File + ".key" }

// Specs returns the rows that the control plane node n needs, each CA before
// its leaves. With an external etcd there are no rows for etcd: its owner
// issues the API server's client certificate.
func Specs(n *config.Node) []Spec {
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both := slices.Concat(server, client)

	apiserver := apiserverSANs(n)
	specs := []Spec{
		{Name: CA, File: "ca", CommonName: "kubernetes", DNSNames: []string{"kubernetes"}},
		{
			Name: "apiserver", File: "apiserver", CA: CA, CommonName: "kube-apiserver",
			DNSNames: apiserver.names, IPs: apiserver.ips, Usages: server,
		},
		{
			Name: "apiserver-kubelet-client", File: "apiserver-kubelet-client", CA: CA,
			CommonName: "kube-apiserver-kubelet-client", Usages: client,
		},
		{Name: FrontProxyCA, File: "front-proxy-ca", CommonName: "front-proxy-ca", DNSNames: []string{"front-proxy-ca"}},
		{
			Name: "front-proxy-client", File: "front-proxy-client", CA: FrontProxyCA,
			CommonName: "front-proxy-client", Usages: client,
		},
	}
	if n.Cluster.Etcd.External != nil {
		return specs
	}
	etcdServer, etcdPeer := etcdSANs(n, localEtcd(n).ServerCertSANs), etcdSANs(n, localEtcd(n).PeerCertSANs)
	return append(specs,
		Spec{Name: EtcdCA, File: "etcd/ca", CommonName: "etcd-ca", DNSNames: []string{"etcd-ca"}},
		Spec{
			Name: "etcd-server", File: "etcd/server", CA: EtcdCA, CommonName: n.Name,
			DNSNames: etcdServer.names, IPs: etcdServer.ips, Usages: both,
		},
		Spec{
			Name: "etcd-peer", File: "etcd/peer", CA: EtcdCA, CommonName: n.Name,
			DNSNames: etcdPeer.names, IPs: etcdPeer.ips, Usages: both,
		},
		Spec{
			Name: "etcd-healthcheck-client", File: "etcd/healthcheck-client", CA: EtcdCA,
			CommonName: "kube-etcd-healthcheck-client", Usages: client,
		},
		Spec{
			Name: "apiserver-etcd-client", File: "apiserver-etcd-client", CA: EtcdCA,
			CommonName: "kube-apiserver-etcd-client", Usages: client,
		},
	)
}

func localEtcd(n *config.Node) config.LocalEtcd {
	if n.Cluster.Etcd.Local == nil {
		return config.LocalEtcd{}
	}
	return *n.Cluster.Etcd.Local
}

// apiserverSANs are the names by which Pods, nodes and people reach the API
// server: the Service default/kubernetes, this node, the cluster's endpoint,
// and what the user adds.
func apiserverSANs(n *config.Node) sans {
	var s sans
	s.add(n.Name, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc."+n.Cluster.Networking.DNSDomain)
	s.addIP(n.APIServiceIP())
	s.addIP(n.AdvertiseAddress)
	if host, _ := n.EndpointHost(); host != "" {
		s.add(host)
	}
	s.add(n.Cluster.APIServer.CertSANs...)
	slices.Sort(s.names)
	return s
}

// etcdSANs are the names by which members and clients reach this node's etcd.
func etcdSANs(n *config.Node, extra []string) sans {
	var s sans
	s.add(n.Name, "localhost")
	s.addIP(n.AdvertiseAddress)
	s.addIP(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	s.addIP(netip.IPv6Loopback())
	s.add(extra...)
	slices.Sort(s.names)
	return s
}

// sans collects subject alternative names without duplicates.
type sans struct {
	names []string
	ips   []netip.Addr
}

// add sorts each of list into addresses and names. DNS names are compared
// without case (RFC 4343), so they are kept in lower case.
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
	// An IPv4 address in IPv6 clothes is one and the same in a certificate.
	ip = ip.Unmap().WithZone("")
	if !slices.Contains(s.ips, ip) {
		s.ips = append(s.ips, ip)
	}
}
