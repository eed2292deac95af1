// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package network reads the network configuration of the real host's kernel, and removes Kubernetes' leftovers from it. Stack
// is the entry point; it implements host.NetworkReader and host.NetworkWriter.
package network

import (
	"net"
	"net/netip"
	"slices"
	"sort"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Stack is the kernel's network stack. It implements host.NetworkReader and NetworkWriter.
type Stack struct{}

func (s Stack) Addresses() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, errors.Wrap(err, "list the addresses of this host")
	}
	var out []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

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

// DefaultAddress follows the rule of kubeadm and the kubelet: the default route with the lowest metric comes first, and its
// interface's first global unicast address is taken, whatever source address the route names. If no such interface has an address,
// because the host announces its address by routing, an address of the loopback interface is taken.
func (s Stack) DefaultAddress(ipv6 bool) (netip.Addr, error) {
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	routes, err := defaultRoutes(family)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, route := range routes {
		for _, index := range outgoing(route) {
			if addr, err := globalAddress(index, family); err != nil || addr.IsValid() {
				return addr, err
			}
		}
	}
	if len(routes) == 0 {
		return netip.Addr{}, nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return netip.Addr{}, nil //nolint:nilerr // a network namespace may have no loopback device
	}
	return globalAddress(lo.Attrs().Index, family)
}

// defaultRoutes lists a family's default routes, the lowest metric first.
func defaultRoutes(family int) ([]netlink.Route, error) {
	routes, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
	if err != nil {
		return nil, errors.Wrap(err, "list the routes of this host")
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool {
		return r.Type != unix.RTN_UNICAST || !isDefault(r)
	})
	sort.SliceStable(routes, func(i, j int) bool { return routes[i].Priority < routes[j].Priority })
	return routes, nil
}

// dump reads one of the kernel's lists, again if it changed meanwhile: on a busy node routes come and go with Pods.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range 5 {
		list, err = read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// outgoing lists a route's interfaces.
func outgoing(r netlink.Route) []int {
	if r.LinkIndex != 0 {
		return []int{r.LinkIndex}
	}
	var out []int
	for _, hop := range r.MultiPath {
		out = append(out, hop.LinkIndex)
	}
	return out
}

// globalAddress returns an interface's first address that other hosts can reach; the zero Addr if it has none. An IPv6 address
// must be permanent.
func globalAddress(index, family int) (netip.Addr, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return netip.Addr{}, errors.Wrapf(err, "look at network interface %d", index)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return netip.Addr{}, errors.Wrapf(err, "list the addresses of network interface %s", link.Attrs().Name)
	}
	passing := unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	if family == unix.AF_INET6 { // for IPv4 this bit means a secondary address
		passing |= unix.IFA_F_TEMPORARY
	}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if ok && addr.Unmap().IsGlobalUnicast() && a.Flags&passing == 0 {
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, nil
}

func (s Stack) Routes() ([]host.Route, error) {
	// Without a filter this is the main table.
	routes, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, errors.Wrap(err, "list the routes of this host")
	}
	names := map[int]string{}
	var out []host.Route
	for _, route := range routes {
		if route.Type != unix.RTN_UNICAST || isDefault(route) || route.Dst.IP.IsMulticast() {
			continue
		}
		addr, _ := netip.AddrFromSlice(route.Dst.IP)
		bits, _ := route.Dst.Mask.Size()
		for _, index := range outgoing(route) {
			if names[index] == "" {
				if link, err := netlink.LinkByIndex(index); err == nil { // otherwise it was just removed
					names[index] = link.Attrs().Name
				}
			}
			out = append(out, host.Route{Destination: netip.PrefixFrom(addr.Unmap(), bits), Interface: names[index], Gateway: throughGateway(route)})
		}
	}
	return out, nil
}

// throughGateway reports whether a route, or each path of a multipath route, names a next hop.
func throughGateway(route netlink.Route) bool {
	if len(route.MultiPath) == 0 {
		return route.Gw != nil || route.Via != nil
	}
	return !slices.ContainsFunc(route.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.Gw == nil && hop.Via == nil })
}
