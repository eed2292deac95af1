// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"strings"
)

// DefaultKubernetesVersion is the newest release when this program was built.
const DefaultKubernetesVersion = "v1.37.2"

const pauseTag = "3.10.2"

// release is a minor version of Kubernetes 1: its newest patch when this program was built, and a control plane's other images.
type release struct {
	minor, patch  int
	etcd, coreDNS string
}

// releases are the supported minor versions, oldest first, with the images of kubeadm 1.36 (for 1.35) and 1.37 (the others).
func releases() []release {
	return []release{
		{35, 8, "3.6.8-0", "v1.14.2"},
		{36, 4, "3.7.0-0", "v1.14.6"},
		{37, 2, "3.7.0-0", "v1.14.6"},
	}
}

// NewestPatch returns the newest patch of Kubernetes 1.minor at this program's build, such as v1.37.2; "" if it's unsupported.
func NewestPatch(minor int) string {
	for _, r := range releases() {
		if r.minor == minor {
			return fmt.Sprintf("v1.%d.%d", r.minor, r.patch)
		}
	}
	return ""
}

// release returns this cluster's release. An unsupported version gets the nearest supported release.
func (c *ClusterConfiguration) release() release {
	all := releases()
	minor := minorOf(c.KubernetesVersion)
	for _, r := range all {
		if r.minor >= minor {
			return r
		}
	}
	return all[len(all)-1]
}

// EtcdVersion returns the etcd version for control planes of a minor release of Kubernetes, such as 1.37: 3.7.0, or the version
// in etcd.local.imageTag, which needn't look like a version. It's empty for an external etcd.
func (c *ClusterConfiguration) EtcdVersion(minor string) string {
	if c.Etcd.External != nil {
		return ""
	}
	at := *c
	at.KubernetesVersion = minor + ".0"
	version, _, _ := strings.Cut(at.etcdTag(), "-") // the rest counts the image's builds
	return version
}

func (c *ClusterConfiguration) etcdTag() string {
	if local := c.Etcd.Local; local != nil && local.ImageTag != "" {
		return local.ImageTag
	}
	return c.release().etcd
}

// SandboxImage is the image of Pods' sandboxes in its usual registry.
func SandboxImage() string { return DefaultImageRepository + "/pause:" + pauseTag }

// Image returns the full name of a component's image: kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,
// coredns, pause, etcd or one of flannel's.
func (n *Node) Image(component string) string {
	c := &n.Cluster
	repository, name := c.ImageRepository, component
	// A tag can't contain the plus sign of build metadata.
	tag := strings.ReplaceAll(c.KubernetesVersion, "+", "_")
	switch component {
	case "coredns":
		repository, tag = cmp.Or(c.DNS.ImageRepository, repository), cmp.Or(c.DNS.ImageTag, c.release().coreDNS)
		// Only registry.k8s.io has CoreDNS one level deeper, and only an explicit repository overrides that.
		if c.DNS.ImageRepository == "" && repository == DefaultImageRepository {
			repository += "/coredns"
		}
	case "pause":
		tag = pauseTag
	case FlannelImage, FlannelPluginImage:
		repository, tag = c.flannelImage(component)
	case EtcdComponent:
		tag = c.etcdTag()
		if local := c.Etcd.Local; local != nil {
			repository = cmp.Or(local.ImageRepository, repository)
		}
	}
	return repository + "/" + name + ":" + tag
}

// Images returns the full names of all images this control plane needs, in the order of `config images list`.
func (n *Node) Images() []string {
	components := []string{APIServerComponent, ControllerManagerComponent, SchedulerComponent}
	if !n.Cluster.Proxy.Disabled {
		components = append(components, "kube-proxy")
	}
	if !n.Cluster.DNS.Disabled {
		components = append(components, "coredns")
	}
	components = append(components, "pause")
	if n.Cluster.Etcd.External == nil {
		components = append(components, EtcdComponent)
	}
	if n.NetworkAddOn.Name == Flannel {
		components = append(components, FlannelPluginImage, FlannelImage)
	}
	images := make([]string, len(components))
	for i, c := range components {
		images[i] = n.Image(c)
	}
	return images
}
