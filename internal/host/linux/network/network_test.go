// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/apart"
)

func TestInterfaces(t *testing.T) {
	all, err := stack.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == "" || i.Name == "lo" || i.MTU <= 0 {
			t.Errorf("%+v", i)
		}
	}
}

func TestNetwork(t *testing.T) {
	r := stack
	addrs, err := r.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		addr, err := r.DefaultAddress(v6)
		if err != nil {
			t.Error(err)
		}
		if addr.IsValid() && (addr.Is4() == v6 || !addr.IsGlobalUnicast() || !slices.Contains(addrs, addr)) {
			t.Errorf("default address %v, of %v", addr, addrs)
		}
	}
	routes, err := r.Routes()
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routes {
		if !route.Destination.IsValid() || route.Destination.Bits() == 0 || route.Interface == "" {
			t.Errorf("route %+v", route)
		}
	}
}

var stack Stack

// topology describes a host's connections. Addresses and routes are written as `interface what`; for a route, what is
// `destination [metric]`.
type topology struct {
	name      string
	addresses []string
	routes    []string
	v4, v6    string // the default addresses
	leaves    string // the interface of the default route
}

// topologies were compared with kubeadm's choices.
func topologies() []topology {
	return []topology{
		{name: "none", addresses: []string{"e0 10.0.0.1/24"}},
		{name: "first of two", addresses: []string{"e0 10.0.0.1/24", "e0 10.0.0.2/24"}, routes: []string{"e0 0.0.0.0/0"}, v4: "10.0.0.1", leaves: "e0"},
		{name: "lowest metric", addresses: []string{"e0 10.0.0.1/24", "e1 10.0.1.1/24"}, routes: []string{"e0 0.0.0.0/0 200", "e1 0.0.0.0/0 100"}, v4: "10.0.1.1", leaves: "e1"},
		{name: "IPv6", addresses: []string{"e0 10.0.0.1/24", "e0 fd01::5/64"}, routes: []string{"e0 ::/0"}, v6: "fd01::5", leaves: "e0"},
		{name: "both", addresses: []string{"e0 10.0.0.1/24", "e1 fd01::5/64"}, routes: []string{"e0 0.0.0.0/0", "e1 ::/0"}, v4: "10.0.0.1", v6: "fd01::5", leaves: "e0"},
		{name: "announced", addresses: []string{"e0 169.254.1.1/24", "lo 10.9.9.9/32"}, routes: []string{"e0 0.0.0.0/0"}, v4: "10.9.9.9", leaves: "e0"},
		{name: "elsewhere", addresses: []string{"e1 10.0.1.1/24"}, routes: []string{"e0 0.0.0.0/0"}, leaves: "e0"},
		{name: "unreachable", addresses: []string{"e0 10.0.0.1/24"}, routes: []string{"unreachable 0.0.0.0/0"}},
	}
}

func TestDefaultAddress(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	for _, top := range topologies() {
		if err := top.check(); err != nil {
			t.Errorf("%s: %v", top.name, err)
		}
	}
}

func (top topology) checkInterfaces() error {
	all, err := stack.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		kind, master := "veth", ""
		switch i.Name {
		case "b0":
			kind = "bridge"
		case "pe1":
			master = "b0"
		}
		if i.Kind != kind || i.Master != master {
			return fmt.Errorf("interface %+v is a %s at %q", i, kind, master)
		}
		if i.Default != (i.Name == top.leaves) || i.Name == "lo" || i.MTU < 1280 {
			return fmt.Errorf("interface %+v, the default route leads to %q", i, top.leaves)
		}
		for _, a := range top.addresses {
			name, addr, _ := strings.Cut(a, " ")
			if prefix := netip.MustParsePrefix(addr); name == i.Name && !slices.Contains(i.Addresses, prefix.Addr()) {
				return fmt.Errorf("interface %+v lacks %s", i, addr)
			}
		}
	}
	if len(all) == 0 {
		return errors.New("no interface")
	}
	return nil
}

func (top topology) check() error {
	if err := top.build(); err != nil {
		return err
	}
	defer top.tearDown()
	for v6, want := range map[bool]string{false: top.v4, true: top.v6} {
		got, err := stack.DefaultAddress(v6)
		if err != nil {
			return err
		}
		if got != (netip.Addr{}) && got.String() != want || want != "" && !got.IsValid() {
			return fmt.Errorf("default address %v, want %q", got, want)
		}
	}
	if err := top.checkInterfaces(); err != nil {
		return err
	}
	routes, err := stack.Routes()
	if err != nil {
		return err
	}
	var got, want []string
	for _, r := range routes {
		if !r.Destination.Addr().IsLinkLocalUnicast() {
			got = append(got, r.Interface+" "+r.Destination.String())
		}
	}
	for _, a := range top.addresses { // each brings the route to its network
		link, prefix, _ := strings.Cut(a, " ")
		p := netip.MustParsePrefix(prefix).Masked()
		text := link + " " + p.String()
		if link != "lo" && !p.Addr().IsLinkLocalUnicast() && !slices.Contains(want, text) {
			want = append(want, text)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("routes (-want +got):\n%s", diff)
	}
	return nil
}

func (top topology) build() error {
	for _, name := range []string{"e0", "e1"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "p" + name}); err != nil {
			return err
		}
	}
	if err := joinBridge("b0", "pe1"); err != nil {
		return err
	}
	for _, name := range []string{"lo", "b0", "e0", "e1", "pe0", "pe1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	for _, a := range top.addresses {
		name, text, _ := strings.Cut(a, " ")
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	for _, r := range top.routes {
		route, err := parseRoute(r)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route %s: %w", r, err)
		}
	}
	return nil
}

// joinBridge makes a bridge with one port.
func joinBridge(name, port string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(link, bridge)
}

func parseRoute(text string) (*netlink.Route, error) {
	fields := strings.Fields(text)
	_, dst, err := net.ParseCIDR(fields[1])
	if err != nil {
		return nil, err
	}
	route := &netlink.Route{Dst: dst}
	if len(fields) > 2 {
		if _, err := fmt.Sscan(fields[2], &route.Priority); err != nil {
			return nil, err
		}
	}
	if fields[0] == "unreachable" {
		route.Type = unix.RTN_UNREACHABLE
		return route, nil
	}
	link, err := netlink.LinkByName(fields[0])
	if err != nil {
		return nil, err
	}
	route.LinkIndex = link.Attrs().Index
	return route, nil
}

// tearDown removes the interfaces with their addresses and routes, and loopback's addresses.
func (top topology) tearDown() {
	for _, name := range []string{"b0", "e0", "e1"} {
		if link, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(link)
		}
	}
	for _, a := range top.addresses {
		if text, ok := strings.CutPrefix(a, "lo "); ok {
			lo, _ := netlink.LinkByName("lo")
			addr, _ := netlink.ParseAddr(text)
			_ = netlink.AddrDel(lo, addr)
		}
	}
}
