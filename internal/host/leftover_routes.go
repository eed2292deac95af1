// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeLeftovers finds the routes to Pods of other nodes: through another host, to a part of one of the networks. flannel
// makes such routes with its backend host-gw:
// https://github.com/flannel-io/flannel/blob/v0.28.10/Documentation/backends.md#host-gw. Routes that name another origin than
// programs give by default, such as those of a routing daemon or of systemd-networkd, are somebody else's.
func routeLeftovers(networks []netip.Prefix) ([]Leftover, error) {
	if len(networks) == 0 {
		return nil, nil
	}
	routes, err := mainRoutes()
	if err != nil {
		return nil, err
	}
	var found []Leftover
	for _, route := range routes {
		if route.Protocol == unix.RTPROT_BOOT && route.Gw != nil && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return partOf(n, route) }) {
			found = append(found, Leftover{RouteToNode, routeName(route)})
		}
	}
	return found, nil
}

// mainRoutes are those of the main table, which the library takes if no filter is given.
func mainRoutes() ([]netlink.Route, error) {
	routes, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	return routes, errors.Wrap(err, "list the routes of this host")
}

// partOf reports whether a route leads to a part of a network, and not to all of it.
func partOf(network netip.Prefix, route netlink.Route) bool {
	if route.Dst == nil {
		return false
	}
	addr, ok := netip.AddrFromSlice(route.Dst.IP)
	bits, _ := route.Dst.Mask.Size()
	return ok && network.Contains(addr.Unmap()) && bits > network.Bits()
}

func routeName(route netlink.Route) string { return fmt.Sprintf("%s via %s", route.Dst, route.Gw) }

// removeRoute deletes the routes of that name. It is not an error if there is none.
func removeRoute(name string) error {
	routes, err := mainRoutes()
	if err != nil {
		return err
	}
	for _, route := range routes {
		if route.Dst == nil || route.Gw == nil || routeName(route) != name {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
