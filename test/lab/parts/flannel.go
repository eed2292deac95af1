// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

const (
	flannelModule   = "github.com/flannel-io/flannel"
	flannelRegistry = "ghcr.io/flannel-io/"
	// flannelPluginTag is the tag of the image in flannel's manifest. No module has that version: the plugin in the image comes from
	// the component flannel-cni.
	flannelPluginTag = "v1.9.1-flannel3"
)

// flannelImages returns the images of the Pod network flannel, with the paths in its manifest: its daemon, and its plugin with a
// cp that installs it.
func (r *versioned) flannelImages() []imageRecipe {
	return []imageRecipe{
		{
			image: image{
				name:       flannelRegistry + "flannel:" + r.versions.Flannel,
				entrypoint: []string{"/opt/bin/flanneld"},
				of:         "flannel, without the backends udp and tencent-vpc,", debian: packetLicenses,
			},
			picks: r.picks("flanneld", "install-conf"), directory: "opt/bin/", tools: packetTools,
		},
		{
			image: image{
				name: flannelRegistry + "flannel-cni-plugin:" + flannelPluginTag,
				of:   "the plugin flannel of github.com/containernetworking/plugins", debian: copyLicenses,
			},
			picks: r.picks("flannel"), tools: copyTools,
		},
	}
}
