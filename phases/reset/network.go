// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	networkTimeout = 3 * time.Minute
	// pluginConfig is where the runtime looks for network plugins; it takes the first file by name.
	pluginConfig = "/etc/cni/net.d"
	// pluginState is where plugins record the addresses they've assigned.
	pluginState = "/var/lib/cni"
	// loopbackNetwork is containerd's name for the loopback interface of each Pod.
	loopbackNetwork = "cni-loopback"
)

// removeNetwork removes the traces of kube-proxy, the kubelet and the Pod network in the kernel and below /var/lib/cni. The
// network plugin's configuration is the user's.
func (c *cleanup) removeNetwork(ctx context.Context) {
	if !c.Config.Reset.Network {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	if c.network == nil {
		c.leaveNetwork(ctx)
		return
	}
	if process, held := c.Host.PortHolder(kubeletPort); held && !c.isNode {
		c.warnf("this host's network stays, because %s (process %d) listens on the kubelet's port %d, so the network is in use", process.Name, process.PID, kubeletPort)
		return
	}
	left, err := c.Host.NetworkLeftovers(ctx, c.network.Bridge)
	if err != nil {
		c.warnf("not all of the kernel's network state could be read: %v", err)
	}
	for _, l := range left {
		c.UI.Printf("Removing %s", l)
		err := c.Host.RemoveLeftover(ctx, l)
		c.record(err == nil, err)
	}
	c.removePluginState(c.network.Name)
	if err != nil {
		_, err = c.Host.NetworkLeftovers(ctx, c.network.Bridge)
	}
	if len(c.failed) == 0 && host.IgnoreForbidden(err) == nil {
		c.removeNetworkSigns()
	}
}

// leaveNetwork names the network state that stays on a host with no sign of having been a node.
func (c *cleanup) leaveNetwork(ctx context.Context) {
	left, _ := c.Host.NetworkLeftovers(ctx, host.DefaultBridge) // nothing depends on it
	var names []string
	for _, l := range left {
		names = append(names, l.String())
	}
	if len(names) > 0 {
		c.warn("this host's network stays, because nothing shows that it belongs to a node of kubeadm or Slipway, and other tools make the same rules and interfaces: "+
			strings.Join(names, ", "), "if nothing needs it, restart the machine: the kernel does not keep it")
	}
}

func (c *cleanup) removePluginState(network string) {
	c.removeTree(filepath.Join(pluginState, "flannel"))
	if network != "" {
		c.removeTree(filepath.Join(pluginState, "networks", network))
		for _, cache := range []string{"results", "cache/results"} {
			c.removeResults(filepath.Join(pluginState, cache), network)
		}
	}
	for _, dir := range []string{"networks", "results", "cache/results", "cache", ""} {
		c.removeEmpty(filepath.Join(pluginState, dir))
	}
}

// removeResults removes the runtime's records of a network's Pods, files called NETWORK-CONTAINER-INTERFACE. Others stay, such as
// those of a network called NETWORK-2: only a network's name contains hyphens.
func (c *cleanup) removeResults(dir, network string) {
	isOf := func(name, network string) bool {
		rest, found := strings.CutPrefix(name, network+"-")
		return found && strings.Count(rest, "-") == 1
	}
	for _, name := range c.entries(dir) {
		if isOf(name, network) || isOf(name, loopbackNetwork) {
			c.removeFile(filepath.Join(dir, name))
		}
	}
}

// removeNetworkSigns removes the files that say what to remove. They go last, and the note after the others: a run that follows
// an interrupted run needs them.
func (c *cleanup) removeNetworkSigns() {
	for _, remove := range []func(){
		func() { c.removeFile(flannelSubnets) },
		func() { c.removeEmpty(filepath.Dir(flannelSubnets)) },
		c.removeFlannelPlugins,
		func() { c.removeFile(networkPath) },
	} {
		if remove(); len(c.failed) > 0 {
			return
		}
	}
}

// removeFlannelPlugins leaves settings of flannel's plugins that aren't Slipway's: such a network is the user's.
func (c *cleanup) removeFlannelPlugins() {
	switch have, ours := c.flannelPlugins(); {
	case ours:
		c.removeFile(config.FlannelPluginsPath)
	case have != nil:
		wanted := ownership.File{Path: config.FlannelPluginsPath, Data: []byte(manifests.FlannelPlugins)}
		wanted.SayKept(c.UI, have, "remove it if nothing needs it")
	}
}
