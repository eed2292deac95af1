// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

const (
	// networkPath is where reset notes a node's Pod network, for `reset --network` once the node is gone. Like the kernel's state,
	// it doesn't survive a restart of the machine.
	networkPath = "/run/slipway-network.json"
	// flannelSubnets is where flannel writes this host's subnets:
	// https://github.com/flannel-io/flannel/blob/v0.28.10/Documentation/running.md
	flannelSubnets = "/run/flannel/subnet.env"
	// kubeletPort is every kubelet's, even inside another program such as k3s.
	kubeletPort = 10250
)

type podNetwork struct {
	// Name is empty if no file says it.
	Name   string `json:"name,omitempty"`
	Bridge string `json:"bridge"`
}

// findNetwork finds this node's network, before or after a reset. A host that was never a node has none: other tools have some.
//
// A node's files say which network it has. findNetwork notes it: they go before the network, and by then other files may match.
func (c *cleanup) findNetwork() error {
	sign, err := thisnode.NodeEvidence(c.Host, c.Config.Paths)
	if err := host.IgnoreForbidden(err); err != nil {
		return err
	}
	if c.isNode = sign != ""; c.isNode {
		if c.network, err = c.networkOfNode(); err != nil {
			return err
		}
		return c.noteNetwork()
	}
	return c.findFormerNetwork()
}

// findFormerNetwork goes by the note, or by traces.
func (c *cleanup) findFormerNetwork() error {
	data, err := host.ReadIfExists(c.Host, networkPath)
	if err := host.IgnoreForbidden(err); err != nil {
		return err
	}
	if data != nil {
		c.network = &podNetwork{}
		return errors.Wrapf(json.Unmarshal(data, c.network), "read %s", networkPath)
	}
	emptied := c.resetByKubeadm()
	if !emptied && !c.hasTraces() {
		return nil
	}
	c.network = &podNetwork{Bridge: host.DefaultBridge}
	if data, _ := c.flannelPlugins(); data != nil {
		c.network.learn(data)
	}
	if emptied {
		return c.noteNetwork() // because this run removes the directory
	}
	return nil
}

// noteNetwork doesn't write into a tree that isn't a running system: it has no network.
func (c *cleanup) noteNetwork() error {
	if _, err := c.Host.Lstat(filepath.Dir(networkPath)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	data, err := json.Marshal(c.network)
	if err != nil {
		return err
	}
	_, err = c.Host.WriteFile(networkPath, append(data, '\n'), 0o644)
	return err
}

// hasTraces reports whether there are traces of a node, not of another tool: Slipway's settings for flannel, or its preparation.
func (c *cleanup) hasTraces() bool {
	_, ours := c.flannelPlugins()
	_, err := c.Host.Lstat(thisnode.PreparedPath)
	return ours || err == nil
}

// resetByKubeadm reports whether this host has the directory kubeadm's reset leaves empty.
func (c *cleanup) resetByKubeadm() bool {
	entries, err := c.Host.ReadDir(config.DefaultCertificatesDir)
	return err == nil && len(entries) == 0
}

// flannelPlugins are the settings of flannel's plugins, nil without flannel. ours reports whether they're Slipway's.
func (c *cleanup) flannelPlugins() (data []byte, ours bool) {
	data, err := host.ReadIfExists(c.Host, config.FlannelPluginsPath)
	c.record(false, host.IgnoreForbidden(err))
	return data, string(data) == manifests.FlannelPlugins
}

// networkOfNode is the network the runtime gives to Pods, from the first file by name.
func (c *cleanup) networkOfNode() (*podNetwork, error) {
	found := &podNetwork{Bridge: host.DefaultBridge}
	entries, err := c.Host.ReadDir(pluginConfig)
	if err := host.IgnoreForbidden(host.IgnoreMissing(err)); err != nil {
		return nil, err
	}
	for _, e := range entries { // sorted by name
		if e.IsDir() || !preflight.IsNetwork(e.Name()) {
			continue
		}
		data, err := c.Host.ReadFile(filepath.Join(pluginConfig, e.Name()))
		if err := host.IgnoreForbidden(host.IgnoreMissing(err)); err != nil {
			return nil, err
		}
		if strings.HasPrefix(e.Name(), "nerdctl-") || found.learn(data) {
			break
		}
	}
	return found, nil
}

// otherBridges begin the names that other tools with the same plugins give to their bridges.
var otherBridges = []string{"cni-podman", "nerdctl"}

// learn takes a network's name and bridge from its file, unless it belongs to a tool with containers of its own. It reports
// whether the file has a network.
func (n *podNetwork) learn(data []byte) bool {
	var conf plugin
	if yaml.Unmarshal(data, &conf) != nil || conf.Name == "" || filepath.Base(conf.Name) != conf.Name {
		return false
	}
	bridge := n.Bridge
	for _, p := range append(conf.Plugins, conf) {
		if p.Type == "bridge" && p.Bridge != "" {
			bridge = p.Bridge
		}
	}
	if !slices.ContainsFunc(otherBridges, func(prefix string) bool { return strings.HasPrefix(bridge, prefix) }) {
		n.Name, n.Bridge = conf.Name, bridge
	}
	return true
}

// plugin is the part of a network's configuration that matters here: https://www.cni.dev/docs/spec/#configuration-format
type plugin struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Bridge  string   `json:"bridge"`
	Plugins []plugin `json:"plugins"`
}
