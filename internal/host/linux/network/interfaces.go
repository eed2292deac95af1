// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (s Stack) Interfaces() ([]host.Interface, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, errors.Wrap(err, "list the network interfaces of this host")
	}
	leads, err := defaultInterfaces()
	if err != nil {
		return nil, err
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, errors.Wrap(err, "list the addresses of this host")
	}
	has := map[int][]netip.Addr{}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			has[a.LinkIndex] = append(has[a.LinkIndex], addr.Unmap())
		}
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	var out []host.Interface
	for _, link := range links {
		a := link.Attrs()
		if a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOOPBACK == 0 {
			out = append(out, host.Interface{
				Name: a.Name, Kind: virtualKind(link), Master: names[a.MasterIndex], MTU: a.MTU,
				Default: slices.Contains(leads, a.Index), Addresses: has[a.Index],
			})
		}
	}
	return out, nil
}

func virtualKind(link netlink.Link) string {
	if kind := link.Type(); kind != "device" {
		return kind
	}
	return ""
}

// defaultInterfaces returns the indexes of the default route's interfaces; a multipath route has several.
func defaultInterfaces() ([]int, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := defaultRoutes(family)
		if err != nil {
			return nil, err
		}
		if len(routes) > 0 {
			return outgoing(routes[0]), nil
		}
	}
	return nil, nil
}
