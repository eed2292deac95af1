// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strconv"
)

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
	path := controllerManagerArgs
	for i, a := range d.cluster.ControllerManager.ExtraArgs {
		if a.Name == name {
			path = fmt.Sprintf("%s[%d].value", controllerManagerArgs, i)
		}
	}
	return path
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
