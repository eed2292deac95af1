// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// forwardsIPv6 is the parameter of all interfaces, by path below /proc/sys.
	forwardsIPv6 = "net/ipv6/conf/all/forwarding"
	// acceptRoutes ends the names of the parameters by which an interface takes its default route from the router.
	acceptRoutes = "/accept_ra"
)

// forwards reports whether containers and virtual machines reach others by a parameter, whatever has started them.
func forwards(name string) bool {
	return strings.HasSuffix(name, "/ip_forward") || strings.HasSuffix(name, "/forwarding") || strings.HasPrefix(name, "net/bridge/")
}

func acceptsRoutes(name string) bool { return strings.HasSuffix(name, acceptRoutes) }

// needsForwarding says why this host has to forward packets, also without its preparation; empty if nothing shows that it has to.
// Programs that need it set the parameters when they start, and only then.
func needsForwarding(ctx context.Context, env *step.Env) (string, error) {
	runtime, err := otherRuntime(ctx, env)
	switch {
	case err != nil:
		return "", err
	case runtime != "":
		return runtime + " may need it", nil
	}
	interfaces, err := env.Host.Interfaces()
	if err != nil {
		return "cannot tell whether something else needs it: " + err.Error(), nil //nolint:nilerr // then it stays
	}
	if others := networksOfOthers(interfaces); len(others) > 0 {
		return "the network behind " + strings.Join(others, ", ") + ", which is not from Kubernetes, may need it", nil
	}
	return "", nil
}

// uplinkKinds are the kinds of virtual interfaces that lead to the outside only, as hardware does. Behind any other, such as a
// bridge, veth, tuntap or wireguard, may be containers, virtual machines or another network.
var uplinkKinds = []string{"", "bond", "dummy", "ifb", "ipoib", "ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "team", "vlan"}

// podLinks are the interfaces of the Pod networks that reset removes. They are still there in a plan.
var podLinks = []string{reset.DefaultBridge, "flannel.1", "flannel-v6.1"}

// networksOfOthers are the interfaces behind which may be networks that are not from Kubernetes: those of Docker, Podman, libvirt,
// LXD, and whatever comes next. The ports of a bridge are part of its network. The interface of the default route is this
// host's own way out if this host is a container or its traffic goes through a tunnel; behind a bridge are others all the same.
func networksOfOthers(interfaces []host.Interface) []string {
	var bridges, others []string
	for _, i := range interfaces {
		if i.Kind == "bridge" {
			bridges = append(bridges, i.Name)
		}
	}
	for _, i := range interfaces {
		wayOut := i.Default && i.Kind != "bridge"
		if !wayOut && !slices.Contains(uplinkKinds, i.Kind) && !slices.Contains(podLinks, i.Name) && !slices.Contains(bridges, i.Master) {
			others = append(others, i.Name)
		}
	}
	slices.Sort(others)
	return others
}

// routesStay says why an interface goes on as one of a host that forwards; empty if it does not have to. Such a host takes its
// default route from the router's advertisements only with that.
func routesStay(env *step.Env, before map[string]string) string {
	text, err := host.ReadIfExists(env.Host, host.ProcSys+forwardsIPv6)
	switch {
	case err != nil:
		return "cannot tell whether this host still forwards IPv6: " + err.Error()
	case text == nil, strings.TrimSpace(string(text)) == before[forwardsIPv6]:
		return ""
	}
	return "this host still forwards IPv6, and would lose its default route"
}
