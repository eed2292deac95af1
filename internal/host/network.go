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
	// Kind is the kernel's name for a kind of virtual interfaces, such as bridge,
	// veth, tuntap or bond; empty for hardware.
	Kind string
	// Master is the interface that this is a port of, such as a bridge.
	Master string
	// MTU is the size of the largest packet, in bytes.
	MTU int
	// Default reports whether it carries the default route: the IPv4 one with the
	// lowest metric, or the IPv6 one on a host without IPv4.
	Default   bool
	Addresses []netip.Addr
}

// Leftover is a piece of configuration that Kubernetes has left in the kernel's network
// configuration.
type Leftover struct {
	Kind LeftoverKind
	// Name is the table with its family, the set, or the interface.
	Name string
}

// LeftoverKind is the kind of a Leftover.
type LeftoverKind string

const (
	// LegacyChains are the chains KUBE-… and FLANNEL-… of a table of legacy
	// iptables, with the rules in built-in chains that jump to them.
	LegacyChains LeftoverKind = "iptables (legacy) chains of Kubernetes in table"
	// Chains are the same in a table of nftables, which iptables-nft uses.
	Chains LeftoverKind = "chains of Kubernetes in nftables table"
	// ProxyTable is the table of kube-proxy or of flannel in nftables mode.
	ProxyTable LeftoverKind = "nftables table"
	// EmptyTable is a table that does nothing, as iptables-nft leaves it.
	EmptyTable LeftoverKind = "empty nftables table"
	// Sets are the sets KUBE-… of kube-proxy in ipvs mode.
	Sets LeftoverKind = "ipset"
	// Link is a network interface.
	Link LeftoverKind = "network interface"
)

func (l Leftover) String() string { return fmt.Sprintf("%s %s", l.Kind, l.Name) }

// Route is one entry of the routing table.
type Route struct {
	Destination netip.Prefix
	Interface   string
	// Gateway reports whether the destination is reached through another host.
	Gateway bool
}

// Process is a running process as /proc shows it.
type Process struct {
	PID int
	// Name is the file name of its program.
	Name string
}
