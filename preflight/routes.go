// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// networks compares the cluster's two networks with the host's routes.
//
// If a network this host is attached to is part of such a network, or all of it, hosts there have the same addresses as Pods or
// Services, so it's an error. A route of that size through a gateway may be just as bad, or may be how an administrator reaches
// other nodes' Pods, so it's a warning. A wider route (a company's 10.0.0.0/8, say) loses against the cluster's: only hosts with
// such an address can't be reached, so it's a warning, too.
//
// An existing cluster's networks can no longer be chosen, and the routes to its nodes' Pods may have been added before a node
// joins.
func networks(n *config.Node) []Check {
	return []Check{
		{Name: "PodSubnetRoutes", Run: routes(n, "Pod", n.PodSubnets, "--pod-network-cidr or networking.podSubnet"), Description: "the Pod network does not overlap a network that this host has a route to"},
		{Name: "ServiceSubnetRoutes", Run: routes(n, "Service", n.ServiceSubnets, "--service-cidr or networking.serviceSubnet"), Description: "the Service network does not overlap a network that this host has a route to"},
	}
}

func routes(n *config.Node, of string, subnets func() []netip.Prefix, setting string) func(context.Context, View) []fault.Finding {
	other := "choose another network with " + setting
	if n.Join != nil {
		other = "change the network of this host, as the cluster already uses this one"
	}
	return func(_ context.Context, h View) []fault.Finding {
		all, err := h.Routes()
		if err != nil {
			return warn("cannot read this host's routes, so the %s network is not checked: %v", of, err).remedy("compare it with `ip route`")
		}
		inUse := exists(h, n.Paths.StaticPod(apiServer)) || n.Join != nil && joinBegun(n, h)
		var found []fault.Finding
		for _, subnet := range subnets() {
			network := fmt.Sprintf("the %s network %s", of, subnet)
			if subnet.Contains(n.AdvertiseAddress) {
				found = append(found, fail("%s contains this node's own address %s", network, n.AdvertiseAddress).remedy("%s", other)...)
			}
			found = append(found, conflicts(network, overlaps(subnet, all), n.Join != nil, inUse, other)...)
		}
		return found
	}
}

// conflicts reports routes overlapping a network of the cluster. A joining host may have routes to other nodes' Pods. Where the
// cluster already uses the network, its CNI plugin may have made routes of either kind.
func conflicts(network string, r overlap, joins, inUse bool, other string) []fault.Finding {
	var found []fault.Finding
	var expected []host.Route
	if inUse {
		expected, r.attached = append(expected, r.attached...), nil
	}
	if inUse || joins {
		expected, r.routed = append(expected, r.routed...), nil
	}
	if len(expected) > 0 {
		found = append(found, note("routes into %s: %s", network, list(expected))...)
	}
	if len(r.attached) > 0 {
		found = append(found, fail("%s overlaps networks that this host is attached to (%s)", network, list(r.attached)).remedy("%s", other)...)
	}
	if len(r.routed) > 0 {
		found = append(found, warn("this host has routes into %s (%s)", network, list(r.routed)).
			remedy("unless they lead to other nodes of the cluster, %s", other)...)
	}
	if len(r.around) > 0 {
		found = append(found, warn("%s lies within networks that this host has routes to (%s), so hosts there with such an address cannot be reached", network, list(r.around)).
			remedy("if there are such hosts, %s", other)...)
	}
	return found
}

// overlap holds the routes overlapping a network: routes to a part of it or to all of it, attached to this host or led through a
// gateway, and wider routes around it.
type overlap struct{ attached, routed, around []host.Route }

// overlaps leaves out interfaces of CNI plugins and kube-proxy.
func overlaps(subnet netip.Prefix, routes []host.Route) overlap {
	var o overlap
	for _, r := range routes {
		switch {
		case !r.Destination.IsValid() || !subnet.Overlaps(r.Destination) || clusterInterface(r.Interface):
		case r.Destination.Bits() < subnet.Bits():
			o.around = append(o.around, r)
		case r.Gateway:
			o.routed = append(o.routed, r)
		default:
			o.attached = append(o.attached, r)
		}
	}
	return o
}

// clusterInterface reports whether an interface is named like a common CNI plugin's (bridge, Flannel, Calico, Cilium, Antrea,
// kube-router, OVN-Kubernetes, Weave), or like kube-proxy's in IPVS mode. Podman has cni-podman0, and LXC lxcbr0.
func clusterInterface(name string) bool {
	return name != "lxcbr0" && slices.ContainsFunc([]string{
		"cni0", "flannel", "cali", "vxlan.calico", "tunl0", "wireguard.cali", "cilium", "lxc", "antrea-",
		"kube-bridge", "ovn-k8s", "weave", "kube-ipvs0",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// listed is how many routes a message names at most.
const listed = 3

func list(routes []host.Route) string {
	var texts []string
	for _, r := range routes {
		texts = append(texts, fmt.Sprintf("%s on %s", r.Destination, r.Interface))
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if more := len(texts) - listed; more > 0 {
		texts = append(texts[:listed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// minMTU is IPv6's minimum (RFC 8200, section 5). IPv4 works with less, but nobody has such a network on purpose.
const minMTU = 1280

// mtu compares the MTUs of this host's interfaces. Network add-ons use the default route's: if traffic of the node or of Pods
// takes another interface with a smaller MTU, only packets of full size get lost.
func mtu(_ context.Context, h View, n *config.Node) []fault.Finding {
	all, err := h.Interfaces()
	if err != nil {
		return warn("cannot read the MTU of the network interfaces: %v", err).remedy("compare them with `ip link`")
	}
	at := slices.IndexFunc(all, func(i host.Interface) bool { return i.Default })
	if at < 0 {
		return skip("this host has no default route")
	}
	out := all[at]
	var found []fault.Finding
	if out.MTU < minMTU {
		found = warn("%s, the interface of the default route, has MTU %d; IPv6 needs at least %d, and a Pod network that encapsulates takes about 50 of it", out.Name, out.MTU, minMTU).
			remedy("raise it with `ip link set %s mtu 1500`, if that network allows it", out.Name)
	}
	for _, i := range all {
		switch {
		case clusterInterface(i.Name) && i.MTU > out.MTU:
			found = append(found, warn("%s has MTU %d, but %s, the interface of the default route, has %d, so full-size packets of Pods to other hosts get lost", i.Name, i.MTU, out.Name, out.MTU).
				remedy("set the network add-on's MTU to at most %d", out.MTU)...)
		case slices.Contains(i.Addresses, n.AdvertiseAddress) && i.MTU < out.MTU:
			found = append(found, warn("this node's address %s is on %s with MTU %d, but network add-ons use that of %s, the interface of the default route: %d", n.AdvertiseAddress, i.Name, i.MTU, out.Name, out.MTU).
				remedy("set the add-on's MTU to fit %s, or give both interfaces the same MTU", i.Name)...)
		}
	}
	return found
}

func proxies(n *config.Node) []Check {
	return []Check{
		{Name: "HTTPProxy", Run: with(n, apiProxy), Description: "requests to the API server go through no proxy (warning)"},
		{Name: "HTTPProxyCIDR", Run: with(n, networkProxy), Description: "requests to the networks of Services and Pods go through no proxy (warning)"},
	}
}

// apiProxy checks the proxy of this program and everything that inherits its environment.
func apiProxy(_ context.Context, h View, n *config.Node) []fault.Finding {
	var found []fault.Finding
	for _, endpoint := range apiEndpoints(n) {
		proxy, err := h.ProxyFor("https://" + endpoint)
		if err != nil {
			return warn("%v", err).remedy(fixProxy)
		}
		if proxy != "" {
			host, _, _ := net.SplitHostPort(endpoint) // made by JoinHostPort
			found = append(found, warn("requests to the API server at %s would go through the proxy %s", endpoint, proxy).
				remedy("to bypass the proxy, add %s to NO_PROXY", host)...)
		}
	}
	return found
}

const fixProxy = "fix or remove HTTPS_PROXY and HTTP_PROXY"

// apiEndpoints lists the addresses at which this node reaches the API.
func apiEndpoints(n *config.Node) []string {
	if n.ControlPlane {
		return slices.Compact([]string{n.LocalEndpoint(), n.Endpoint()})
	}
	u, err := url.Parse(n.Join.Server)
	if err != nil || u.Host == "" { // the cluster is not known
		return nil
	}
	return []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))}
}

func networkProxy(_ context.Context, h View, n *config.Node) []fault.Finding {
	var found []fault.Finding
	for _, network := range slices.Concat(n.ServiceSubnets(), n.PodSubnets()) {
		for _, addr := range []netip.Addr{network.Addr().Next(), last(network)} {
			proxy, err := h.ProxyFor("https://" + net.JoinHostPort(addr.String(), strconv.Itoa(443)))
			if err != nil {
				return warn("%v", err).remedy(fixProxy)
			}
			if proxy != "" {
				found = append(found, warn("requests to %s, a network of the cluster, would go through the proxy %s, which cannot reach it", network, proxy).
					remedy("add %s to NO_PROXY", network)...)
				break
			}
		}
	}
	return found
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}
