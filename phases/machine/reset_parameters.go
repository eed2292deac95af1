// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// resetParameters restores kernel parameters' earlier values, unless somebody else has set them, sets them at boot, or needs them.
func resetParameters(ctx context.Context, env *step.Env, before map[string]string) error {
	forwarding, err := needsForwarding(ctx, env)
	if err != nil {
		return err
	}
	for _, name := range parametersInOrder(before) {
		text, err := env.Host.ReadFile(host.ProcSys + name)
		if err != nil {
			if host.IgnoreMissing(err) != nil { // an interface may be gone
				return err
			}
			continue
		}
		now, shown := strings.TrimSpace(string(text)), strings.ReplaceAll(name, "/", ".")
		if now == before[name] {
			continue
		}
		why := whyKeepParameter(env, name, now, before[name], forwarding)
		if why == "" && acceptsRoutes(name) {
			why = whyKeepRoutes(env, before)
		}
		if why != "" {
			env.UI.Printf("Leaving %s at %s: %s", shown, now, why)
			continue
		}
		if _, err := env.Host.SetParameter(name, before[name]); err != nil {
			return err
		}
		env.UI.Printf("Set %s back to %s", shown, before[name])
	}
	return nil
}

// parametersInOrder has accept_ra last: it depends on forwarding.
func parametersInOrder(before map[string]string) []string {
	return slices.SortedStableFunc(maps.Keys(before), func(a, b string) int {
		if byRoutes := cmp.Compare(strings.Count(a, acceptRoutes), strings.Count(b, acceptRoutes)); byRoutes != 0 {
			return byRoutes
		}
		return cmp.Compare(a, b)
	})
}

// whyKeepParameter says why a parameter doesn't get its earlier value; "" if it does. forwarding is why packets must be forwarded.
func whyKeepParameter(env *step.Env, name, now, before, forwarding string) string {
	if ours := valueOnNode(name); ours != "" && now != ours {
		return "it was changed since this host was prepared"
	}
	file, value, err := preflight.BootParameter(env.Host, sysctlPath, name)
	switch {
	case err != nil:
		return "cannot tell whether a file sets it at boot: " + err.Error()
	case file != "" && value != before:
		return file + " sets it to " + value + " at boot"
	case forwarding != "" && forwards(name):
		return forwarding
	}
	return ""
}

// valueOnNode is the value a preparation or a node's programs give to a parameter; "" if it differs between nodes.
func valueOnNode(name string) string {
	for _, parameters := range []map[string]string{nodeParameters, preflight.KubeletParameters()} {
		if value, of := parameters[name]; of {
			return value
		}
	}
	if acceptsRoutes(name) {
		return "2"
	}
	return "1"
}

// otherRuntime is the unit of a running container runtime not from a bundle. Some set the parameters they need only at start.
func otherRuntime(ctx context.Context, env *step.Env) (string, error) {
	own, err := ownContainerd(ctx, env)
	if err != nil {
		return "", err
	}
	units := []string{"docker.service"}
	for _, r := range knownRuntimes() {
		units = append(units, r.unit)
	}
	for _, unit := range units {
		state, err := unitState(ctx, env, unit)
		if err != nil {
			return "", err
		}
		if state.ActiveState == "active" && (unit != containerd.Unit || !own) {
			return unit, nil
		}
	}
	return "", nil
}

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
var podLinks = []string{host.DefaultBridge, "flannel.1", "flannel-v6.1"}

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

// whyKeepRoutes says why an interface keeps a forwarding host's setting; "" if it needn't. Such a host takes its default route from
// the router's advertisements only with that.
func whyKeepRoutes(env *step.Env, before map[string]string) string {
	text, err := host.ReadIfExists(env.Host, host.ProcSys+forwardsIPv6)
	switch {
	case err != nil:
		return "cannot tell whether this host still forwards IPv6: " + err.Error()
	case text == nil, strings.TrimSpace(string(text)) == before[forwardsIPv6]:
		return ""
	}
	return "this host still forwards IPv6, and would lose its default route"
}
