// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// leastMTU is the least that IPv6 works with (RFC 8200, section 5). IPv4 would
// do with less, but nobody has such a network on purpose.
const leastMTU = 1280

// mtu holds the packet sizes of this host's interfaces against each other.
// Network add-ons take the default route's: where the node's own traffic, or
// that of Pods, goes another way, packets of full size get lost, and only they.
func mtu(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		all, err := h.Interfaces()
		if err != nil {
			return warn("the MTU of the network interfaces cannot be told: %v", err)
		}
		at := slices.IndexFunc(all, func(i host.Interface) bool { return i.Default })
		if at < 0 {
			return skip("no default route leads out of this host")
		}
		out := all[at]
		var found []Finding
		if out.MTU < leastMTU {
			found = warn("the MTU of %s, to which the default route leads, is %d; IPv6 needs %d, and a Pod network that encapsulates takes some 50 of it: raise it with `ip link set %s mtu 1500`, if the network there allows it", out.Name, out.MTU, leastMTU, out.Name)
		}
		for _, i := range all {
			switch {
			case clusterInterface(i.Name) && i.MTU > out.MTU:
				found = append(found, warn("the MTU of %s is %d, more than the %d of %s, to which the default route leads: full packets of Pods to other hosts get lost; set the network add-on's MTU to %d at most", i.Name, i.MTU, out.MTU, out.Name, out.MTU)...)
			case slices.Contains(i.Addresses, n.AdvertiseAddress) && i.MTU < out.MTU:
				found = append(found, warn("this node's address %s is on %s with an MTU of %d, and the default route leads to %s with %d, which network add-ons go by: set the add-on's MTU by that of %s, or make both equal", n.AdvertiseAddress, i.Name, i.MTU, out.Name, out.MTU, i.Name)...)
			}
		}
		return found
	}
}
