// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// networkAddOn lists the checks for the network add-on installed by init.
func networkAddOn(n *config.Node) []Check {
	if n.NetworkAddOn.Name != config.Flannel {
		return nil
	}
	return []Check{{Name: "Flannel", Run: with(n, flannel), Description: "with `--network flannel`: its port is free, the container runtime finds its plugins, no other network's configuration comes before its own, the kernel has vxlan, br_netfilter is loaded unless kube-proxy uses nftables, and each IP family of the Pod network has a default route"}}
}

// flannel follows https://github.com/flannel-io/flannel/blob/v0.28.10/Documentation/kubernetes.md and troubleshooting.md. A host
// needs the routes for itself, too: it reaches Services only through an address with a route.
func flannel(ctx context.Context, h View, n *config.Node) []fault.Finding {
	found := append(flannelPort(h), flannelPlugins(ctx, h, n.CRISocket)...)
	found = append(append(found, networksBefore(h, config.FlannelPluginsPath)...), flannelModules(h, n)...)
	for _, family := range []struct {
		ipv6 bool
		name string
	}{{false, "IPv4"}, {true, "IPv6"}} {
		if !hasFamily(n, family.ipv6) {
			continue
		}
		if address, err := h.DefaultAddress(family.ipv6); err != nil {
			found = append(found, warn("cannot read this host's default route of %s: %v", family.name, err).remedy("check it with `ip route`")...)
		} else if !address.IsValid() {
			found = append(found, fail("this host has no default route of %s, which flannel needs because the Pod network has addresses of it", family.name).
				remedy("add one, even to a gateway that is not there: `ip route add default via ADDRESS`; or leave %s out of the Pod network", family.name)...)
		}
	}
	return found
}

// flannelModules: the kernel loads vxlan for flannel, but not br_netfilter.
func flannelModules(h View, n *config.Node) []fault.Finding {
	k := readKernel(h)
	var found []fault.Finding
	if k.state(module{name: "vxlan", option: "VXLAN"}) == absent {
		found = fail("the kernel module vxlan is neither loaded nor installed, and flannel sends packets to other nodes in VXLAN").
			remedy("%s", host.ModulesRemedy(h))
	}
	const dir = host.ProcSys + "net/bridge/"
	missing := hasFamily(n, false) && !exists(h, dir+"bridge-nf-call-iptables") || hasFamily(n, true) && !exists(h, dir+"bridge-nf-call-ip6tables")
	if n.KubeProxy.Mode == "nftables" || !missing {
		return found
	}
	remedy := "run `modprobe br_netfilter`, and add br_netfilter to /etc/modules-load.d/k8s.conf; `slipway host prepare` does both"
	if k.state(bridgeNetfilter()) == absent {
		remedy = host.ModulesRemedy(h)
	}
	return append(found, fail("the kernel module br_netfilter is not loaded, and flannel does not start without it").remedy("%s", remedy)...)
}

// pluginDir is where flannel's Pods and bundles put network plugins.
const pluginDir = "/opt/cni/bin"

// flannelPlugins checks that the container runtime finds the plugins that flannel's configuration names, or it starts no Pod. A runtime
// that doesn't answer is for the check CRI, and one that doesn't run yet doesn't say where it looks.
func flannelPlugins(ctx context.Context, h View, socket string) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, socket)
	if err != nil || len(info.CNIPluginDirs) == 0 {
		return nil
	}
	dirs := strings.Join(info.CNIPluginDirs, ", ")
	has := func(plugin string) bool {
		return slices.ContainsFunc(info.CNIPluginDirs, func(dir string) bool { return exists(h, filepath.Join(dir, plugin)) })
	}
	// It may reach the directory by a symlink.
	if !slices.ContainsFunc(info.CNIPluginDirs, func(dir string) bool { return filepath.Clean(dir) == pluginDir || isLink(h, dir) }) &&
		!isLink(h, pluginDir) && !isLink(h, filepath.Dir(pluginDir)) && !has(config.Flannel) {
		return fail("%s looks for network plugins in %s, and flannel installs its own to %s, so no Pod could start", info.Name, dirs, pluginDir).
			remedy(pluginDirRemedy)
	}
	missing := slices.DeleteFunc([]string{"bridge", "host-local", "portmap"}, has)
	if len(missing) == 0 {
		return nil
	}
	return fail("%s looks for network plugins in %s, which lacks %s, so no Pod could start", info.Name, dirs, strings.Join(missing, ", ")).
		remedy("install the CNI plugins there; `slipway host prepare --bundle FILE` installs them to %s", pluginDir)
}

func isLink(h View, path string) bool {
	info, err := h.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// networksBefore finds a configuration that a runtime takes instead of path, because it takes the first by name:
// https://github.com/containernetworking/cni/blob/main/libcni/api.go
func networksBefore(h View, path string) []fault.Finding {
	entries, err := h.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return warn("cannot see whether another network's configuration comes before flannel's: %v", err).remedy("look into %s", filepath.Dir(path))
	}
	for _, e := range entries {
		if IsNetwork(e.Name()) && e.Name() < filepath.Base(path) {
			return fail("%s configures another Pod network, and the container runtime uses it in the place of flannel's %s, which comes after it",
				filepath.Join(filepath.Dir(path), e.Name()), filepath.Base(path)).
				remedy("if nothing needs it, move it out of %s; or leave out --network flannel, and keep that network", filepath.Dir(path))
		}
	}
	return nil
}

// IsNetwork reports whether a runtime takes a file of /etc/cni/net.d for a network's configuration.
func IsNetwork(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

func hasFamily(n *config.Node, ipv6 bool) bool {
	return slices.ContainsFunc(n.PodSubnets(), func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 })
}

// flannelPort accepts a port that flannel itself holds.
func flannelPort(h View) []fault.Finding {
	const port = 8081
	err := h.PortFree(loopback, port)
	if err == nil {
		return nil
	}
	holder, found := h.PortHolder(port)
	switch {
	case !found:
		return fail("%v, and flannel needs this port", err).remedy("find the program that holds it with `ss -ltnp` as root, and stop it")
	case holder.Name != "flanneld":
		return fail("port %d, which flannel needs, is held by %s (process %d)", port, holder.Name, holder.PID).remedy("stop that program, or give it another port")
	}
	return note("flannel is already running (process %d)", holder.PID)
}
