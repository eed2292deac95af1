// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
)

// Interface is a network interface of this host.
type Interface struct {
	Name string
	// Kind is the kernel's name for the kind of a virtual interface, such as bridge, veth, tuntap or bond; empty for hardware.
	Kind string
	// Master is the interface, such as a bridge, that has this interface as a port.
	Master string
	// MTU is the largest packet's size in bytes.
	MTU int
	// Default reports whether the interface carries the default route: IPv4's with the lowest metric, or IPv6's on a host without
	// IPv4.
	Default   bool
	Addresses []netip.Addr
}

// Leftover is a piece of the kernel's network configuration that Kubernetes left behind.
type Leftover struct {
	Kind LeftoverKind
	// Name is the table with its family, or the interface.
	Name string
}

// LeftoverKind is the kind of a Leftover.
type LeftoverKind string

const (
	// LegacyChains are a legacy iptables table's chains KUBE-… and FLANNEL-…, with the rules in built-in chains that jump to
	// them.
	LegacyChains LeftoverKind = "iptables (legacy) chains of Kubernetes in table"
	// Chains are the same in an nftables table, which iptables-nft uses. The table goes, too, if nothing else is in it.
	Chains LeftoverKind = "chains of Kubernetes in nftables table"
	// ProxyTable is the table of kube-proxy or flannel in nftables mode.
	ProxyTable LeftoverKind = "nftables table"
	// Link is a network interface, such as a bridge or a dummy.
	Link LeftoverKind = "network interface"
)

func (l Leftover) String() string { return fmt.Sprintf("%s %s", l.Kind, l.Name) }

// DefaultBridge is the default of the network plugin "bridge": https://www.cni.dev/plugins/current/main/bridge/
const DefaultBridge = "cni0"

// Route is an entry of the routing table.
type Route struct {
	Destination netip.Prefix
	Interface   string
	// Gateway reports whether the route leads through another host.
	Gateway bool
}

// Process is a running process as /proc shows it.
type Process struct {
	PID int
	// Name is its program's file name.
	Name string
}
