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
	// forwardsIPv6 is the parameter for all interfaces, by path below /proc/sys.
	forwardsIPv6 = "net/ipv6/conf/all/forwarding"
	// acceptRoutes ends the names of parameters that let an interface take its default route from the router.
	acceptRoutes = "/accept_ra"
)

// forwards reports whether containers and virtual machines need a parameter to reach others, whatever started them.
func forwards(name string) bool {
	return strings.HasSuffix(name, "/ip_forward") || strings.HasSuffix(name, "/forwarding") || strings.HasPrefix(name, "net/bridge/")
}

func acceptsRoutes(name string) bool { return strings.HasSuffix(name, acceptRoutes) }

// needsForwarding says why this host must forward packets even without its preparation; "" if nothing shows it. Programs that
// need the parameters set them only when they start.
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

// uplinkKinds are the kinds of virtual interfaces that lead only to the outside, as hardware does. Behind any other, such as a
// bridge, veth, tuntap or wireguard, there may be containers, virtual machines or another network.
var uplinkKinds = []string{"", "bond", "dummy", "ifb", "ipoib", "ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "team", "vlan"}

// podLinks are interfaces of the Pod networks that reset removes. A plan still finds them.
var podLinks = []string{reset.DefaultBridge, "flannel.1", "flannel-v6.1"}

// networksOfOthers are interfaces in front of possible networks that aren't from Kubernetes: Docker's, Podman's, libvirt's,
// LXD's, and whatever comes next. A bridge's ports are part of its network. The default route's interface is this host's own way
// out if this host is a container or uses a tunnel; but behind a bridge there are others all the same.
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

// routesStay says why an interface keeps a forwarding host's setting; "" if it needn't. Such a host takes its default route from
// the router's advertisements only with that.
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
