// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

const (
	kubeProxyKubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	kubeletHealthzPort  = 10248
	// firstWithProxyMode is the first minor version for which kubeadm writes out kube-proxy's mode: the default will change.
	firstWithProxyMode = 36
)

// defaultKubelet fills in the cluster's KubeletConfiguration. It keeps the user's values, except rotateCertificates: a kubelet
// that doesn't rotate its certificate drops out of the cluster after a year. The result is stored in the cluster, so nothing here
// depends on a host. See kubeletconfig.Fit.
func defaultKubelet(k *kubelet.KubeletConfiguration, c *ClusterConfiguration) {
	k.TypeMeta = metav1.TypeMeta{APIVersion: kubeletAPI, Kind: kindKubelet}
	k.StaticPodPath = cmp.Or(k.StaticPodPath, path.Join(DefaultKubernetesDir, "manifests"))
	k.ClusterDomain = cmp.Or(k.ClusterDomain, c.Networking.DNSDomain)
	if k.ClusterDNS == nil {
		k.ClusterDNS = clusterDNS(c)
	}
	k.Authentication.X509.ClientCAFile = cmp.Or(k.Authentication.X509.ClientCAFile, path.Join(c.CertificatesDir, "ca.crt"))
	if k.Authentication.Anonymous.Enabled == nil {
		k.Authentication.Anonymous.Enabled = new(false)
	}
	if k.Authentication.Webhook.Enabled == nil {
		k.Authentication.Webhook.Enabled = new(true)
	}
	k.Authorization.Mode = cmp.Or(k.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	k.HealthzBindAddress = cmp.Or(k.HealthzBindAddress, "127.0.0.1")
	if k.HealthzPort == nil {
		k.HealthzPort = new(int32(kubeletHealthzPort))
	}
	k.CgroupDriver = cmp.Or(k.CgroupDriver, "systemd")
	k.RotateCertificates = true
}

// clusterDNS is the DNS Service's address: the tenth of the primary service network.
func clusterDNS(c *ClusterConfiguration) []string {
	networks := prefixes(c.Networking.ServiceSubnet)
	if len(networks) == 0 {
		return nil
	}
	return []string{nthAddress(networks[0], 10).String()}
}

// defaultKubeProxy makes kube-proxy listen in the API server's IP family.
func defaultKubeProxy(p *kubeproxy.KubeProxyConfiguration, c *ClusterConfiguration, advertise netip.Addr) {
	p.TypeMeta = metav1.TypeMeta{APIVersion: kubeProxyAPI, Kind: kindKubeProxy}
	any := "0.0.0.0"
	if advertise.Is6() {
		any = "::"
	}
	p.BindAddress = cmp.Or(p.BindAddress, any)
	if minorOf(c.KubernetesVersion) >= firstWithProxyMode {
		p.Mode = cmp.Or(p.Mode, "iptables")
	}
	p.ClusterCIDR = cmp.Or(p.ClusterCIDR, c.Networking.PodSubnet)
	p.ClientConnection.Kubeconfig = cmp.Or(p.ClientConnection.Kubeconfig, kubeProxyKubeconfig)
}
