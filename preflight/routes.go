// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// networks holds the cluster's two networks against the host's routes.
//
// A network that is attached to this host and is a part of such a network, or
// all of it, excludes it: the hosts there and the Pods or Services have the
// same addresses, so it is an error. A route of that size through a gateway
// may be just as bad, or may be how an administrator leads to the Pods of the
// other nodes, so it is a warning. A wider route (a company's 10.0.0.0/8, say)
// loses against the cluster's: everything works but for hosts with such an
// address, which is worth a warning at most.
//
// The networks of a cluster that exists cannot be chosen any more, and whoever
// adds a node to it may well have made the routes to the others' Pods before.
func networks(n *config.Node) []Check {
	return []Check{
		{Name: "PodSubnetRoutes", Run: routes(n, "Pods", n.PodSubnets, "--pod-network-cidr or networking.podSubnet"), Asks: "the Pods' network holds no address that this host has a route to"},
		{Name: "ServiceSubnetRoutes", Run: routes(n, "Services", n.ServiceSubnets, "--service-cidr or networking.serviceSubnet"), Asks: "the Services' network holds no address that this host has a route to"},
	}
}

func routes(n *config.Node, of string, subnets func() []netip.Prefix, setting string) func(context.Context, View) []Finding {
	mend := "choose another with " + setting
	if n.Join != nil {
		mend = "the cluster has it already, so change the network of this host"
	}
	return func(_ context.Context, h View) []Finding {
		all, err := h.Routes()
		if err != nil {
			return warn("the host's routes cannot be told, so the network of %s is not checked: %v", of, err)
		}
		var found []Finding
		for _, subnet := range subnets() {
			if subnet.Contains(n.AdvertiseAddress) {
				found = append(found, fault("the network of %s, %s, contains this node's own address %s: %s", of, subnet, n.AdvertiseAddress, mend)...)
			}
			attached, led, around := overlaps(subnet, all)
			if n.Join != nil && len(led) > 0 {
				found = append(found, note("routes into the network of %s, %s: %s", of, subnet, list(led))...)
				led = nil
			}
			if (exists(h, manifestPath(n, apiServer)) || n.Join != nil && joinBegun(n, h)) && len(attached)+len(led) > 0 {
				// The cluster uses the network already, and its CNI plugin
				// may have made these routes.
				found = append(found, note("routes into the network of %s, %s: %s", of, subnet, list(append(attached, led...)))...)
				attached, led = nil, nil
			}
			if len(attached) > 0 {
				found = append(found, fault("the network of %s, %s, takes addresses of networks that this host is attached to (%s): %s", of, subnet, list(attached), mend)...)
			}
			if len(led) > 0 {
				found = append(found, warn("this host has routes into the network of %s, %s (%s): unless they lead to the %s of other nodes, %s", of, subnet, list(led), of, mend)...)
			}
			if len(around) > 0 {
				found = append(found, warn("the network of %s, %s, lies within networks to which this host has routes (%s): hosts there with an address of %s will be out of reach; %s if there are any", of, subnet, list(around), subnet, mend)...)
			}
		}
		return found
	}
}

// overlaps splits the routes that overlap subnet into those to a part of it or
// to all of it, attached to this host or led through a gateway, and those that
// are wider. Interfaces that CNI plugins and kube-proxy make are left out.
func overlaps(subnet netip.Prefix, routes []host.Route) (attached, led, around []host.Route) {
	for _, r := range routes {
		switch {
		case !r.Destination.IsValid() || !subnet.Overlaps(r.Destination) || clusterInterface(r.Interface):
		case r.Destination.Bits() < subnet.Bits():
			around = append(around, r)
		case r.Gateway:
			led = append(led, r)
		default:
			attached = append(attached, r)
		}
	}
	return attached, led, around
}

// clusterInterface knows the interfaces of common CNI plugins by the names
// that they give them: bridge, Flannel, Calico, Cilium, Antrea, kube-router,
// OVN-Kubernetes and Weave, and the one of kube-proxy in IPVS mode.
func clusterInterface(name string) bool {
	return slices.ContainsFunc([]string{
		"cni", "flannel", "cali", "vxlan.calico", "tunl0", "wireguard.cali", "cilium", "lxc", "antrea-",
		"kube-bridge", "ovn-k8s", "weave", "kube-ipvs0",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// listed is how many routes a message names.
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
