// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	// networkLimit bounds the work on the kernel's network.
	networkLimit = time.Minute
	// pluginConfig is where the runtime looks for network plugins; it takes the first file by name.
	pluginConfig = "/etc/cni/net.d"
	// pluginState is where plugins record the addresses that they have assigned.
	pluginState = "/var/lib/cni"
	// loopbackNetwork is containerd's name for the loopback interface of each Pod.
	loopbackNetwork = "cni-loopback"
	// defaultBridge is the default of the plugin "bridge":
	// https://www.cni.dev/plugins/current/main/bridge/
	defaultBridge = "cni0"
)

// removeNetwork removes what kube-proxy, the kubelet and the Pods' bridge have left in the kernel and below
// /var/lib/cni. The configuration of the network plugin is the user's.
func (c *cleanup) removeNetwork(ctx context.Context) {
	if !c.Config.Reset.Network {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	defer cancel()
	network := c.podNetwork()
	left, err := c.Host.NetworkLeftovers(ctx, host.PodNetwork{Bridge: network.bridge, Routed: c.flannelNetworks()})
	if err != nil {
		c.warnf("not all of the kernel's network state could be read: %v", err)
	}
	for _, l := range left {
		c.UI.Printf("Removing %s", l)
		err := c.Host.RemoveLeftover(ctx, l)
		c.did(err == nil, err)
	}
	c.removeFlannel()
	if network.name == "" {
		return
	}
	c.removeTree(filepath.Join(pluginState, "networks", network.name))
	for _, cache := range []string{"results", "cache/results"} {
		c.removeResults(filepath.Join(pluginState, cache), network.name)
	}
	for _, dir := range []string{"networks", "results", "cache/results", "cache", ""} {
		c.removeEmpty(filepath.Join(pluginState, dir))
	}
}

// flannelSubnets is where flannel writes what it has given this host:
// https://github.com/flannel-io/flannel/blob/v0.28.10/Documentation/running.md
const flannelSubnets = "/run/flannel/subnet.env"

// flannelNetworks are those of all Pods if flannel has run here.
func (c *cleanup) flannelNetworks() []netip.Prefix {
	data, err := c.Host.ReadFile(flannelSubnets)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	var networks []netip.Prefix
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name != "FLANNEL_NETWORK" && name != "FLANNEL_IPV6_NETWORK" {
			continue
		}
		for _, text := range strings.Split(value, ",") {
			if network, err := netip.ParsePrefix(text); err == nil {
				networks = append(networks, network.Masked())
			}
		}
	}
	return networks
}

// removeFlannel removes what flannel's Pods have put on this host. The settings of its plugins stay if they are not
// Slipway's: with others, the network is the user's.
func (c *cleanup) removeFlannel() {
	c.removeFile(flannelSubnets)
	c.removeEmpty(filepath.Dir(flannelSubnets))
	c.removeTree(filepath.Join(pluginState, "flannel"))
	data, err := c.Host.ReadFile(manifests.FlannelPluginsPath)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	if err == nil && string(data) == manifests.FlannelPlugins {
		c.removeFile(manifests.FlannelPluginsPath)
	}
}

// removeResults removes the runtime's records of a network's Pods, files called NETWORK-CONTAINER-INTERFACE. Other
// networks may belong to other tools.
func (c *cleanup) removeResults(dir, network string) {
	entries, err := c.Host.ReadDir(dir)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), network+"-") || strings.HasPrefix(e.Name(), loopbackNetwork+"-") {
			c.removeFile(filepath.Join(dir, e.Name()))
		}
	}
}

// podNetwork is the network that the runtime gives to Pods.
type podNetwork struct {
	name   string // empty where no file says it
	bridge string
}

func (c *cleanup) podNetwork() podNetwork {
	found := podNetwork{bridge: defaultBridge}
	entries, err := c.Host.ReadDir(pluginConfig)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	for _, e := range entries { // sorted by name
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		data, err := c.Host.ReadFile(filepath.Join(pluginConfig, e.Name()))
		var conf plugin
		if err != nil || yaml.Unmarshal(data, &conf) != nil || conf.Name == "" || filepath.Base(conf.Name) != conf.Name {
			continue
		}
		found.name = conf.Name
		for _, p := range append(conf.Plugins, conf) {
			if p.Type == "bridge" && p.Bridge != "" {
				found.bridge = p.Bridge
			}
		}
		return found
	}
	return found
}

// plugin is the part of a network's configuration that matters here:
// https://www.cni.dev/docs/spec/#configuration-format
type plugin struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Bridge  string   `json:"bridge"`
	Plugins []plugin `json:"plugins"`
}
