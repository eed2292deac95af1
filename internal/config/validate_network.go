// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
)

const (
	// maxServiceHostBits limits a service network: the API server keeps a bitmap of at most 20 bits of addresses.
	maxServiceHostBits = 20
	// minServiceAddresses includes the tenth address, for the DNS Service.
	minServiceAddresses = 10
	// maxNodeBits limits a Pod network: the controller manager keeps a bitmap of the nodes' networks.
	maxNodeBits = 16
)

// network is an element of a list, with the list's field.
type network struct {
	path   string
	text   string
	prefix netip.Prefix
}

// checkNetworking checks each network, and all of them against each other.
func (d *documents) checkNetworking() {
	n := &d.cluster.Networking
	services := d.checkSubnets("networking.serviceSubnet", n.ServiceSubnet)
	for _, s := range services {
		d.checkServiceSize(s)
	}
	pods := d.checkSubnets("networking.podSubnet", n.PodSubnet)
	d.checkNodeMasks(pods)
	for _, p := range pods {
		d.checkPodSize(p, len(pods) > 1)
	}
	for _, p := range pods {
		for _, s := range services {
			if p.prefix.Overlaps(s.prefix) {
				d.faultf(kindCluster, p.path, "%s overlaps networking.serviceSubnet %s; Pods and Services would share addresses", p.text, s.text)
			}
		}
	}
	if msg := subdomainFault(n.DNSDomain); msg != "" {
		d.faultf(kindCluster, "networking.dnsDomain", "%q %s", printable(n.DNSDomain), msg)
	}
	if len(services) > 0 && len(pods) > 0 && !sharesFamily(services, pods) {
		d.warnf(kindCluster, "networking.podSubnet", "%s and networking.serviceSubnet %s are of different IP families; Services will not reach Pods",
			printable(n.PodSubnet), printable(n.ServiceSubnet))
	}
}

func sharesFamily(a, b []network) bool {
	for _, x := range a {
		for _, y := range b {
			if x.prefix.Addr().Is4() == y.prefix.Addr().Is4() {
				return true
			}
		}
	}
	return false
}

// checkSubnets parses a list of at most one network per IP family.
func (d *documents) checkSubnets(path, list string) []network {
	var out []network
	if list == "" {
		return nil
	}
	for text := range strings.SplitSeq(list, ",") {
		prefix, err := parsePrefix(text)
		if err != nil {
			d.faultf(kindCluster, path, "%q %s", printable(text), err)
			continue
		}
		if masked := prefix.Masked(); masked != prefix {
			d.warnf(kindCluster, path, "%s has host bits set; using the network %s", text, masked)
			prefix = masked
		}
		out = append(out, network{path: path, text: text, prefix: prefix})
	}
	if len(out) > 2 || len(out) == 2 && out[0].prefix.Addr().Is4() == out[1].prefix.Addr().Is4() {
		d.faultf(kindCluster, path, "%q must be one network, or one IPv4 and one IPv6 network", printable(list))
	}
	return out
}

// prefixFault explains why text isn't a network.
type prefixFault string

func (f prefixFault) Error() string { return string(f) }

// parsePrefix parses a network strictly: no spaces, leading zeros (which some programs read as octal), or IPv4-mapped IPv6.
func parsePrefix(text string) (netip.Prefix, error) {
	switch prefix, err := netip.ParsePrefix(text); {
	case strings.TrimSpace(text) == "":
		return prefix, prefixFault("is empty; remove the extra comma")
	case strings.TrimSpace(text) != text:
		return prefix, prefixFault("has spaces around it; separate two networks by a comma only")
	case !strings.Contains(text, "/"):
		return prefix, prefixFault("has no mask; expected a network such as 10.96.0.0/12 or fd00:10:96::/112")
	case err != nil && hasLeadingZero(text):
		return prefix, prefixFault("has a leading zero, which some programs read as octal; remove the zero")
	case err != nil:
		return prefix, prefixFault("is not a network such as 10.96.0.0/12 or fd00:10:96::/112")
	case prefix.Addr().Is4In6():
		return prefix, prefixFault("is an IPv4 network in IPv6 form; write it as IPv4")
	default:
		return prefix, nil
	}
}

// hasLeadingZero reports whether text has an octet such as 010 or a mask such as /08.
func hasLeadingZero(text string) bool {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '.' || r == '/' }) {
		if len(part) > 1 && part[0] == '0' && !strings.Contains(part, ":") {
			return true
		}
	}
	return false
}

func (d *documents) checkServiceSize(n network) {
	hostBits := n.prefix.Addr().BitLen() - n.prefix.Bits()
	switch {
	case hostBits > maxServiceHostBits:
		d.faultf(kindCluster, n.path, "%s is too large; its mask must be at least /%d", n.text, n.prefix.Addr().BitLen()-maxServiceHostBits)
	case hostBits < 4 && 1<<hostBits < minServiceAddresses:
		d.faultf(kindCluster, n.path, "%s is too small with %d addresses; at least %d are needed", n.text, 1<<hostBits, minServiceAddresses)
	}
	d.checkUsable(n)
}

// checkPodSize checks that the controller manager can divide a Pod network into a network for each node.
func (d *documents) checkPodSize(n network, dual bool) {
	d.checkUsable(n)
	if !d.allocatesNetworks() {
		return
	}
	mask, flag := d.nodeMask(n.prefix.Addr().Is6(), dual)
	switch bits := n.prefix.Bits(); {
	case bits > mask:
		d.faultf(kindCluster, n.path, "%s is too small: each node gets a /%d from it; choose a larger network or set %s of the controller manager", n.text, mask, flag)
	case bits == mask && !d.stored:
		d.warnf(kindCluster, n.path, "%s has room for exactly one node: each node gets a /%d from it; no other node will get a network for its Pods", n.text, mask)
	case mask-bits > maxNodeBits:
		d.faultf(kindCluster, n.path, "%s is too large: each node gets a /%d from it, and the masks may differ by at most %d bits; choose a smaller network or set %s of the controller manager", n.text, mask, maxNodeBits, flag)
	}
}

// LastArg returns an argument's value; components use the last if a name repeats.
func LastArg(args []Arg, name string) (value string, ok bool) {
	for _, a := range args {
		if a.Name == name {
			value, ok = a.Value, true
		}
	}
	return value, ok
}

// checkUsable refuses networks reserved for other purposes.
func (d *documents) checkUsable(n network) {
	for _, reserved := range []struct{ network, what string }{
		{"127.0.0.0/8", "loopback addresses"}, {"::1/128", "the loopback address"},
		{"224.0.0.0/4", "multicast addresses"}, {"ff00::/8", "multicast addresses"},
		{"169.254.0.0/16", "link-local addresses"}, {"fe80::/10", "link-local addresses"},
		{"0.0.0.0/8", "addresses that mean this host"},
	} {
		if netip.MustParsePrefix(reserved.network).Overlaps(n.prefix) {
			d.faultf(kindCluster, n.path, "%s contains %s", n.text, reserved.what)
			return
		}
	}
}

// clusterNetworks returns the cluster's valid networks. Faults in the others have been reported already.
func (d *documents) clusterNetworks() []network {
	var out []network
	n := &d.cluster.Networking
	for _, list := range []struct{ path, text string }{
		{"networking.serviceSubnet", n.ServiceSubnet}, {"networking.podSubnet", n.PodSubnet},
	} {
		for text := range strings.SplitSeq(list.text, ",") {
			if prefix, err := parsePrefix(text); err == nil {
				out = append(out, network{path: list.path, text: text, prefix: prefix.Masked()})
			}
		}
	}
	return out
}
