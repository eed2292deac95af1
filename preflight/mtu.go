// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// leastMTU is IPv6's minimum (RFC 8200, section 5). IPv4 works with less, but nobody has such a network on purpose.
const leastMTU = 1280

// mtu compares the MTUs of this host's interfaces. Network add-ons use the default route's: if traffic of the node or of Pods
// takes another interface with a smaller MTU, only packets of full size get lost.
func mtu(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		all, err := h.Interfaces()
		if err != nil {
			return warn("cannot read the MTU of the network interfaces: %v", err).remedy("compare them with `ip link`")
		}
		at := slices.IndexFunc(all, func(i host.Interface) bool { return i.Default })
		if at < 0 {
			return skip("this host has no default route")
		}
		out := all[at]
		var found []Finding
		if out.MTU < leastMTU {
			found = warn("%s, the interface of the default route, has MTU %d; IPv6 needs at least %d, and a Pod network that encapsulates takes about 50 of it", out.Name, out.MTU, leastMTU).
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
}
