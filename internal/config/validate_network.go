// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
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
	d.networks = slices.Concat(services, pods)
	d.checkNodeMasks(pods)
	for _, p := range pods {
		d.checkPodSize(p, len(pods) > 1)
	}
	d.checkOverlaps(pods, services)
	if msg := subdomainFault(n.DNSDomain); msg != "" {
		d.faultf(kindCluster, "networking.dnsDomain", "%q %s", printable(n.DNSDomain), msg)
	}
	if len(services) > 0 && len(pods) > 0 && !sharesFamily(services, pods) {
		d.warnf(kindCluster, "networking.podSubnet", "%s and networking.serviceSubnet %s are of different IP families; Services will not reach Pods",
			printable(n.PodSubnet), printable(n.ServiceSubnet))
	}
}

// checkOverlaps only warns of a stored configuration, because that cluster works, or at least most of it.
func (d *documents) checkOverlaps(pods, services []network) {
	reportf := d.faultf
	if d.stored {
		reportf = d.warnf
	}
	for _, p := range pods {
		for _, s := range services {
			if p.prefix.Overlaps(s.prefix) {
				reportf(kindCluster, p.path, "%s overlaps networking.serviceSubnet %s; Pods and Services would share addresses", p.text, s.text)
			}
		}
	}
}

func sharesFamily(a, b []network) bool {
	return slices.ContainsFunc(a, func(x network) bool {
		return slices.ContainsFunc(b, func(y network) bool { return x.prefix.Addr().Is4() == y.prefix.Addr().Is4() })
	})
}

// checkSubnets parses a list of at most one network per IP family.
func (d *documents) checkSubnets(path, list string) []network {
	var out []network
	if list == "" {
		return nil
	}
	for text := range strings.SplitSeq(list, ",") {
		prefix, fault := parsePrefix(text)
		if fault != "" {
			d.faultf(kindCluster, path, "%q %s", printable(text), fault)
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

// parsePrefix parses a network strictly: no spaces, leading zeros (which some programs read as octal), or IPv4-mapped IPv6. fault
// explains why text isn't a network.
func parsePrefix(text string) (prefix netip.Prefix, fault string) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case strings.TrimSpace(text) == "":
		fault = "is empty; remove the extra comma"
	case strings.TrimSpace(text) != text:
		fault = "has spaces around it; separate two networks by a comma only"
	case !strings.Contains(text, "/"):
		fault = "has no mask; expected a network such as 10.96.0.0/12 or fd00:10:96::/112"
	case err != nil && hasLeadingZero(text):
		fault = "has a leading zero, which some programs read as octal; remove the zero"
	case err != nil:
		fault = "is not a network such as 10.96.0.0/12 or fd00:10:96::/112"
	case prefix.Addr().Is4In6():
		fault = "is an IPv4 network in IPv6 form; write it as IPv4"
	}
	return prefix, fault
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
	value, _, ok = argAt("", args, name)
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

// The controller manager's arguments for the size of each node's part of a Pod network. It takes the first only with a single Pod
// network and without the other two, and each of those only with a Pod network of its family:
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/
const (
	nodeMaskArg  = "node-cidr-mask-size"
	nodeMask4Arg = "node-cidr-mask-size-ipv4"
	nodeMask6Arg = "node-cidr-mask-size-ipv6"
)

const controllerManagerArgs = "controllerManager.extraArgs"

func (d *documents) allocatesNetworks() bool {
	value, _ := LastArg(d.cluster.ControllerManager.ExtraArgs, "allocate-node-cidrs")
	return value != "false"
}

// checkNodeMasks refuses arguments that make the controller manager exit.
func (d *documents) checkNodeMasks(pods []network) {
	if len(pods) == 0 || !d.allocatesNetworks() {
		return
	}
	is6 := func(n network) bool { return n.prefix.Addr().Is6() }
	v4, v6 := slices.ContainsFunc(pods, func(n network) bool { return !is6(n) }), slices.ContainsFunc(pods, is6)
	plain, has4, has6 := d.setsMask(nodeMaskArg, 128), d.setsMask(nodeMask4Arg, 32), d.setsMask(nodeMask6Arg, 128)
	switch {
	case plain && v4 && v6:
		d.faultf(kindCluster, d.argPath(nodeMaskArg), "the controller manager refuses %s with two Pod networks; set %s and %s instead", nodeMaskArg, nodeMask4Arg, nodeMask6Arg)
	case plain && (has4 || has6):
		d.faultf(kindCluster, d.argPath(nodeMaskArg), "the controller manager refuses %s beside %s or %s; with one Pod network, set it alone", nodeMaskArg, nodeMask4Arg, nodeMask6Arg)
	case has6 && !v6:
		d.faultf(kindCluster, d.argPath(nodeMask6Arg), "the controller manager refuses %s without an IPv6 Pod network", nodeMask6Arg)
	case has4 && !v4:
		d.faultf(kindCluster, d.argPath(nodeMask4Arg), "the controller manager refuses %s without an IPv4 Pod network", nodeMask4Arg)
	}
}

// setsMask reports whether an argument is set, other than to 0, which counts as unset.
func (d *documents) setsMask(name string, most int) bool {
	value, given := LastArg(d.cluster.ControllerManager.ExtraArgs, name)
	if !given {
		return false
	}
	mask, err := strconv.Atoi(value)
	if err != nil || mask < 0 || mask > most {
		d.faultf(kindCluster, d.argPath(name), "%q is not a mask from 1 to %d", printable(value), most)
		return false
	}
	return mask != 0
}

// argPath locates the controller manager's effective argument: the last of its name.
func (d *documents) argPath(name string) string {
	_, field, _ := argAt(controllerManagerArgs, d.cluster.ControllerManager.ExtraArgs, name)
	return cmp.Or(field, controllerManagerArgs)
}

// nodeMask returns the mask of each node's Pod network, and the argument that sets it. dual is for two Pod networks.
func (d *documents) nodeMask(ipv6, dual bool) (mask int, arg string) {
	mask, arg = 24, nodeMask4Arg
	if ipv6 {
		mask, arg = 64, nodeMask6Arg
	}
	number := func(name string) int {
		value, _ := LastArg(d.cluster.ControllerManager.ExtraArgs, name)
		n, _ := strconv.Atoi(value)
		return n
	}
	if own := number(nodeMaskArg); own > 0 && !dual {
		return own, nodeMaskArg
	}
	if own := number(arg); own > 0 {
		mask = own
	}
	return mask, arg
}
