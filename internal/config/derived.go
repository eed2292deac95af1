// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Values derived from a validated Node.

// ServiceSubnets returns the service networks, primary family first.
func (n *Node) ServiceSubnets() []netip.Prefix { return prefixes(n.Cluster.Networking.ServiceSubnet) }

// PodSubnets returns the Pod networks, primary family first; none if the user set none.
func (n *Node) PodSubnets() []netip.Prefix { return prefixes(n.Cluster.Networking.PodSubnet) }

// APIServiceIP is the address of the Service default/kubernetes: the first of the primary service network.
func (n *Node) APIServiceIP() netip.Addr { return nthAddress(n.ServiceSubnets()[0], 1) }

// ClusterDNSIPs are the DNS Service's possible addresses: the tenth of each service network.
func (n *Node) ClusterDNSIPs() []netip.Addr {
	var ips []netip.Addr
	for _, p := range n.ServiceSubnets() {
		ips = append(ips, nthAddress(p, 10))
	}
	return ips
}

// Endpoint is the host:port of the cluster's API: the control plane endpoint, or this node's if there's none.
func (n *Node) Endpoint() string {
	host, port := n.EndpointHost()
	if host == "" {
		return n.LocalEndpoint()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// EndpointHost splits the control plane endpoint; the port defaults to this node's. Without an endpoint, the host is empty.
func (n *Node) EndpointHost() (host string, port int32) {
	endpoint := n.Cluster.ControlPlaneEndpoint
	if endpoint == "" {
		return "", 0
	}
	host, text, err := net.SplitHostPort(endpoint)
	if err != nil {
		return strings.Trim(endpoint, "[]"), n.BindPort
	}
	p, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return host, n.BindPort
	}
	return host, int32(p)
}

// LocalEndpoint is the host:port of this node's own API server.
func (n *Node) LocalEndpoint() string {
	return net.JoinHostPort(n.AdvertiseAddress.String(), strconv.Itoa(int(n.BindPort)))
}

func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// nthAddress counts from 0.
func nthAddress(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// GeneratedFor returns the node as init at another version would have left it, with kube-proxy's generated settings.
func (n *Node) GeneratedFor(version string) *Node {
	out := *n
	out.Cluster.KubernetesVersion = version
	out.KubeProxy, out.KubeProxyGiven = kubeproxy.KubeProxyConfiguration{}, false
	defaultKubeProxy(&out.KubeProxy, &out.Cluster, out.AdvertiseAddress)
	out.Extras = maps.Clone(n.Extras)
	delete(out.Extras, kindKubeProxy)
	return &out
}
