// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kubeletlabels "k8s.io/kubelet/pkg/apis"
)

// The components of a node, by the names of their static Pods, containers and images.
const (
	EtcdComponent              = "etcd"
	APIServerComponent         = "kube-apiserver"
	ControllerManagerComponent = "kube-controller-manager"
	SchedulerComponent         = "kube-scheduler"
	KubeletComponent           = "kubelet"
)

// ControlPlaneTaint keeps ordinary Pods away from control planes.
const ControlPlaneTaint = "node-role.kubernetes.io/control-plane"

const (
	kubeProxyKubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	kubeletHealthzPort  = 10248
	// firstWithProxyMode is the first minor version for which kubeadm writes out kube-proxy's mode: the default will change.
	firstWithProxyMode = 36
)

// defaultKubelet fills in the cluster's KubeletConfiguration. It keeps the user's values, except rotateCertificates: a kubelet
// that doesn't rotate its certificate drops out of the cluster after a year. The result is stored in the cluster, so nothing here
// depends on a host. See kubeletconfig.AdaptToHost.
func defaultKubelet(k *kubelet.KubeletConfiguration, c *ClusterConfiguration) {
	k.TypeMeta = metav1.TypeMeta{APIVersion: kubeletAPI, Kind: kindKubelet}
	k.StaticPodPath = cmp.Or(k.StaticPodPath, path.Join(DefaultKubernetesDir, "manifests"))
	k.ClusterDomain = cmp.Or(k.ClusterDomain, c.Networking.DNSDomain)
	if k.ClusterDNS == nil {
		k.ClusterDNS = clusterDNS(c)
	}
	k.Authentication.X509.ClientCAFile = cmp.Or(k.Authentication.X509.ClientCAFile, path.Join(c.CertificatesDir, "ca.crt"))
	k.Authentication.Anonymous.Enabled = cmp.Or(k.Authentication.Anonymous.Enabled, new(false))
	k.Authentication.Webhook.Enabled = cmp.Or(k.Authentication.Webhook.Enabled, new(true))
	k.Authorization.Mode = cmp.Or(k.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	k.HealthzBindAddress = cmp.Or(k.HealthzBindAddress, "127.0.0.1")
	k.HealthzPort = cmp.Or(k.HealthzPort, new(int32(kubeletHealthzPort)))
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

const kubeletArgs = "nodeRegistration.kubeletExtraArgs"

// checkKubeletArgs finds settings that keep a kubelet from starting or registering the right Node. If one starts, they're faults.
func (d *documents) checkKubeletArgs(kind, name string, args []Arg, opts Options) {
	d.checkHostnameOverride(kind, name, args, opts)
	fails := d.judgeKubelet(kind, opts)
	labels, labelsField, _ := argAt(kubeletArgs, args, "node-labels")
	var keys []string
	for label := range strings.SplitSeq(labels, ",") {
		key, _, _ := strings.Cut(strings.TrimSpace(label), "=")
		keys = append(keys, key)
	}
	// Given a hostname label, the kubelet doesn't make it from the name.
	if len(name) > validation.LabelValueMaxLength && subdomainFault(name) == "" && !slices.Contains(keys, corev1.LabelHostname) {
		fails(kind, "nodeRegistration.name", "%q is longer than %d characters, the most that the label kubernetes.io/hostname of a node can have; "+
			"this is the node's name, which defaults to the hostname", printable(name), validation.LabelValueMaxLength)
	}
	for _, key := range keys {
		if domain, _, qualified := strings.Cut(key, "/"); qualified && ofKubernetes(domain) && !kubeletlabels.IsKubeletLabel(key) {
			fails(kind, labelsField, "a kubelet does not start with the label %s: in kubernetes.io and k8s.io it may only set %s, and those in %s; "+
				"set it with `kubectl label node` once the node is registered", printable(key), strings.Join(kubeletlabels.KubeletLabels(), ", "),
				strings.Join(kubeletlabels.KubeletLabelNamespaces(), " and "))
		}
	}
}

// judgeKubelet returns how to report settings a kubelet can't have: as faults, unless none is started.
func (d *documents) judgeKubelet(kind string, opts Options) reporter {
	if opts.Existing && !opts.StartsKubelet || skips(d.skipped(kind), "kubelet-start") {
		return d.warnf
	}
	return d.faultf
}

// checkHostnameOverride compares the name the kubelet takes, the hostname if the value is empty, with the node's.
func (d *documents) checkHostnameOverride(kind, name string, args []Arg, opts Options) {
	value, field, given := argAt(kubeletArgs, args, "hostname-override")
	taken := strings.ToLower(strings.TrimSpace(cmp.Or(value, opts.Facts.Hostname)))
	if !given || taken == name {
		return
	}
	fails := d.judgeKubelet(kind, opts)
	switch {
	case d.unnamed, value == "" && opts.Placeholders:
		fails = d.warnf
	case kind == kindJoin && (d.join.ControlPlane == nil || skips(d.skipped(kind), "control-plane-join/mark-control-plane")):
		fails = d.warnf // a joining kubelet chooses the name in its certificate
	}
	fails(kind, field, "the kubelet registers as %s, which is not the node's name, %s; remove the flag, and set the name with nodeRegistration.name (--node-name)",
		printable(taken), printable(name))
}

func (d *documents) skipped(kind string) []string {
	if kind == kindJoin {
		return d.join.SkipPhases
	}
	return d.init.SkipPhases
}

// ofKubernetes reports whether a domain's labels belong to Kubernetes:
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
func ofKubernetes(domain string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool { return domain == own || strings.HasSuffix(domain, "."+own) })
}

// checkComponents warns if component configurations contradict the ClusterConfiguration. It keeps the user's values.
func (d *documents) checkComponents() {
	d.checkKubelet()
	if p := d.kubeProxy; p != nil {
		if pods := d.cluster.Networking.PodSubnet; p.ClusterCIDR != "" && pods != "" && p.ClusterCIDR != pods {
			d.warnf(kindKubeProxy, "clusterCIDR", "%s differs from networking.podSubnet %s", printable(p.ClusterCIDR), pods)
		}
		if p.Mode != "" {
			checkOneOf(d, kindKubeProxy, "mode", "%q is unknown", p.Mode, "iptables", "ipvs", "nftables", "kernelspace")
		}
		if p.Mode == "ipvs" {
			d.warnf(kindKubeProxy, "mode", "Kubernetes will remove ipvs; move to nftables")
		}
		if _, err := netip.ParseAddr(p.BindAddress); p.BindAddress != "" && err != nil {
			d.faultf(kindKubeProxy, "bindAddress", "%q is not an IP address", printable(p.BindAddress))
		}
	}
}

func (d *documents) checkKubelet() {
	k := d.kubelet
	if k == nil {
		return
	}
	if manifests := path.Join(DefaultKubernetesDir, "manifests"); k.StaticPodPath != "" && path.Clean(k.StaticPodPath) != manifests {
		d.warnf(kindKubelet, "staticPodPath", "%s is not %s, where the control plane's manifests are; the control plane will not start", printable(k.StaticPodPath), manifests)
	}
	if domain := d.cluster.Networking.DNSDomain; k.ClusterDomain != "" && k.ClusterDomain != domain {
		d.warnf(kindKubelet, "clusterDomain", "%s differs from networking.dnsDomain %s", printable(k.ClusterDomain), domain)
	}
	if dns := clusterDNS(d.cluster); k.ClusterDNS != nil && len(dns) > 0 && !slices.Equal(k.ClusterDNS, dns) {
		d.warnf(kindKubelet, "clusterDNS", "%s differs from the address of the DNS Service, %s", printable(strings.Join(k.ClusterDNS, ", ")), dns[0])
	}
	if on := k.Authentication.Anonymous.Enabled; on != nil && *on {
		d.warnf(kindKubelet, "authentication.anonymous.enabled", "allows anonymous requests to the kubelet")
	}
	if mode := string(k.Authorization.Mode); mode != "" && mode != "Webhook" {
		d.warnf(kindKubelet, "authorization.mode", "%s gives every client full access to the kubelet", printable(mode))
	}
	if p := k.HealthzPort; p != nil && *p != kubeletHealthzPort {
		d.warnf(kindKubelet, "healthzPort", "%d differs from the default %d", *p, kubeletHealthzPort)
	}
	if o := d.origins[kindKubelet]; o != nil && o.lines["rotateCertificates"] > 0 && !k.RotateCertificates {
		d.warnf(kindKubelet, "rotateCertificates", "is changed to true: without rotation the node drops out of the cluster when its certificate expires")
	}
}

// The API server's EncryptionConfiguration, if `slipway encryption` looks after it. The directory is mounted, because a mounted file
// would stay the old one once another takes its name.
const (
	EncryptionDir  = "/etc/kubernetes/encryption"
	EncryptionFile = EncryptionDir + "/encryption.yaml"
	// EncryptionKeyring has all keys, sealed.
	EncryptionKeyring = EncryptionDir + "/keyring"

	encryptionFlag = "encryption-provider-config"
	reloadFlag     = "encryption-provider-config-automatic-reload"
	encryptionName = "encryption"
)

func encryptionVolume() HostPathMount {
	return HostPathMount{
		Name: encryptionName, HostPath: EncryptionDir, MountPath: EncryptionDir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate,
	}
}

// EncryptedBy returns the file of the API server's flag --encryption-provider-config; empty without the flag.
func (c *ClusterConfiguration) EncryptedBy() string {
	value, _ := LastArg(c.APIServer.ExtraArgs, encryptionFlag)
	return value
}

// HasEncryptionFile reports whether the API servers read EncryptionFile.
func (c *ClusterConfiguration) HasEncryptionFile() bool {
	reload, _ := LastArg(c.APIServer.ExtraArgs, reloadFlag)
	return c.EncryptedBy() == EncryptionFile && reload == "true" && slices.Contains(c.APIServer.ExtraVolumes, encryptionVolume())
}

// WithEncryptionFile returns the API server's arguments and volumes with those for EncryptionFile.
func (c *ClusterConfiguration) WithEncryptionFile() ([]Arg, []HostPathMount) {
	args := slices.DeleteFunc(slices.Clone(c.APIServer.ExtraArgs), func(a Arg) bool { return a.Is(encryptionFlag) || a.Is(reloadFlag) })
	args = append(args, Arg{Name: encryptionFlag, Value: EncryptionFile}, Arg{Name: reloadFlag, Value: "true"})
	volumes := slices.Clone(c.APIServer.ExtraVolumes)
	if !slices.Contains(volumes, encryptionVolume()) {
		volumes = append(volumes, encryptionVolume())
	}
	return args, volumes
}
