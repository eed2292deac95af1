// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"strings"
)

// The settings that every cluster in the lab needs, as documents to append to a configuration file. They suit machines with
// cgroup version 1, without the right to raise their own limits, and with a full disk.
const (
	KubeletConfiguration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard:
  imagefs.available: "0%"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
`
	KubeProxyConfiguration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack:
  maxPerCore: 0
  min: null
`
)

// IgnorePreflightErrors names the preflight check that fails in the lab with both tools: it asks for cgroup version 2.
const IgnorePreflightErrors = "SystemVerification"

// InitConfig returns a configuration file for a node's "init" in the lab. endpoint is the control plane's, or empty for none.
func (n *Node) InitConfig(kubernetesVersion, endpoint string) string {
	cluster := fmt.Sprintf("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+
		"kubernetesVersion: %s\nnetworking:\n  podSubnet: %s\n", kubernetesVersion, strings.Join(n.state.PodSubnets, ","))
	if endpoint != "" {
		cluster += "controlPlaneEndpoint: " + endpoint + "\n"
	}
	return strings.Join([]string{fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: %s
nodeRegistration:
  ignorePreflightErrors:
  - %s
`, n.IP(), IgnorePreflightErrors), cluster, KubeletConfiguration, KubeProxyConfiguration}, "---\n")
}
