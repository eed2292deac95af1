// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"strings"
)

// Values of --network that are not files.
const (
	NoNetwork = "none"
	Flannel   = "flannel"
)

// NetworkAddOn is the Pod network that init installs.
type NetworkAddOn struct {
	// Name is Flannel, a manifest's path, "-" for standard input, or empty for none.
	Name string
	// Manifest is the content of that file.
	Manifest []byte
	// Objects locates each object in the manifest, in order.
	Objects []ManifestObject
}

// StandardInput is the name of standard input in messages.
const StandardInput = "standard input"

// File is the manifest's name in messages.
func (a NetworkAddOn) File() string {
	if a.Name == "-" {
		return StandardInput
	}
	return a.Name
}

// FromFile reports whether the add-on is a user's manifest.
func (a NetworkAddOn) FromFile() bool { return a.Name != "" && a.Name != Flannel }

// Flannel's images: https://github.com/flannel-io/flannel/releases. The second has the CNI plugin, which is released separately.
const (
	flannelRegistry  = "ghcr.io/flannel-io"
	flannelTag       = "v0.28.10"
	flannelPluginTag = "v1.9.1-flannel3"
)

// FlannelPluginsPath is where flannel's Pods put the CNI plugins' settings.
const FlannelPluginsPath = "/etc/cni/net.d/10-flannel.conflist"

// FlannelImage and FlannelPluginImage are components, for Image.
const (
	FlannelImage       = "flannel"
	FlannelPluginImage = "flannel-cni-plugin"
)

// flannelImage returns the repository and tag of one of flannel's images. A user's own registry has them below flannel-io, where
// `bundle push` puts them.
func (c *ClusterConfiguration) flannelImage(component string) (repository, tag string) {
	tags := map[string]string{FlannelImage: flannelTag, FlannelPluginImage: flannelPluginTag}
	repository = flannelRegistry
	if c.ImageRepository != DefaultImageRepository {
		repository = c.ImageRepository + "/flannel-io"
	}
	return repository, tags[component]
}

// Flannel's default Pod networks: from its own manifest, and a unique local address (RFC 4193) with room for 256 nodes.
const (
	flannelSubnet4 = "10.244.0.0/16"
	flannelSubnet6 = "fd00:10:244::/56"
)

// defaultPodSubnet gives flannel, which needs a Pod network, one with the Service network's IP families.
func (d *documents) defaultPodSubnet(flags *Flags) {
	n := &d.cluster.Networking
	if n.PodSubnet != "" || flags.networkAddOn().Name != Flannel {
		return
	}
	var subnets []string
	for _, s := range prefixes(cmp.Or(n.ServiceSubnet, DefaultServiceSubnet)) {
		if s.Addr().Is4() {
			subnets = append(subnets, flannelSubnet4)
		} else {
			subnets = append(subnets, flannelSubnet6)
		}
	}
	n.PodSubnet = strings.Join(subnets, ",")
}

func (f *Flags) networkAddOn() NetworkAddOn {
	if !f.given("network") || f.NetworkAddOn == NoNetwork {
		return NetworkAddOn{}
	}
	return NetworkAddOn{Name: f.NetworkAddOn, Manifest: f.NetworkManifest}
}
