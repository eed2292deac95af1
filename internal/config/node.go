// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads everything the user says, in files and flags, and turns it into one read-only value: Node, the desired
// state of this node and its cluster, or only Machine, the part of it that every host has. LoadInit, LoadJoin, LoadUpgrade,
// LoadReset and LoadHost each start from a Source and their command's flags, decode, default and validate, and report all Faults
// at once. LoadCluster makes a Node from a cluster's stored ConfigMaps. v1beta4.go has kubeadm's types, and flag_table.go the
// flags.
// docs/design/desired-state.md has the reasons.
package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Node is the desired state of this node and its cluster, made from the user's documents, flags, defaults and the host. LoadInit
// or, for a node of an existing cluster, LoadCluster returns it; it's read-only from then on: With returns a changed copy.
type Node struct {
	Machine // the settings of the node's host

	// ControlPlane reports whether the node runs the control plane.
	ControlPlane bool

	Name string // the node's name in the API, a lower-case DNS subdomain
	// Hostname is the host's name in lower case. If it isn't Name, the kubelet needs Name as a flag.
	Hostname string
	Taints   []corev1.Taint // the node's taints, defaults applied; empty means none
	// Schedulable removes the control plane's taint that an earlier run gave the node.
	Schedulable     bool
	ImagePullPolicy corev1.PullPolicy // IfNotPresent unless the user says otherwise
	// ImagePullSerial pulls one image at a time. Only imagePullSerial: true in the user's file sets it, not v1beta4's same default.
	ImagePullSerial bool

	// AdvertiseAddress and BindPort are where clients reach this node's API server.
	AdvertiseAddress netip.Addr
	BindPort         int32
	// FormerAddresses are addresses that this node's API server had, while the node moves to AdvertiseAddress.
	FormerAddresses []netip.Addr

	// Cluster is the configuration all nodes share, with defaults; KubernetesVersion is an exact version with a leading v.
	Cluster      ClusterConfiguration
	KubeProxy    kubeproxy.KubeProxyConfiguration // the cluster-wide KubeProxyConfiguration, with defaults
	NetworkAddOn NetworkAddOn                     // the Pod network to install
	// KubeletGiven and KubeProxyGiven report whether the user wrote that component's document, or a profile sets fields of it.
	// Otherwise it's marked in the cluster as generated, so that an upgrade may regenerate it.
	KubeletGiven, KubeProxyGiven bool

	BootstrapTokens []Token // created by init: at least one; the join command uses the first
	// CertificateKey encrypts the uploaded certificates: 32 bytes in hexadecimal. It's generated if UploadCerts is set, and
	// otherwise empty unless the user set it.
	CertificateKey Secret
	// EnableKubelet makes init enable the kubelet's systemd unit.
	EnableKubelet bool
	// UploadCerts makes init share the control plane's certificates.
	UploadCerts bool

	PatchesDir string // the directory of patches, empty for none
	// SkipTokenPrint and SkipCertificateKeyPrint keep secrets out of init's output.
	SkipTokenPrint          bool
	SkipCertificateKeyPrint bool

	// Join holds discovery's findings about the cluster; nil if the node didn't use discovery.
	Join *Join
	// Reset holds the options of reset; nil for other commands.
	Reset *Reset
	// Upgrade holds the options of upgrade; nil for other commands.
	Upgrade *Upgrade

	// Extras holds, by kind, the parts of the cluster's documents unknown to this version.
	Extras Extras
}

// With returns a copy of the node with a change. Both share slices, maps and pointers, so change replaces them.
func (n *Node) With(change func(*Node)) *Node {
	changed := *n
	change(&changed)
	return &changed
}

// Machine is the desired state of a host, whether it's a node or not. It's all that preparing a host and resetting it need, and
// it's read-only, too.
type Machine struct {
	// CRISocket is the runtime's endpoint, with a scheme: unix:///run/containerd/containerd.sock. A node always has one; for a bare
	// host, it's empty unless the user names it.
	CRISocket string
	// Kubelet is the cluster-wide KubeletConfiguration, with defaults. It's empty for a host whose cluster isn't known.
	Kubelet          kubelet.KubeletConfiguration
	KubeletExtraArgs []Arg // flags for the kubelet's command line, in order

	// SkipPhases and IgnorePreflightErrors are the user's; the latter in lower case, or "all".
	SkipPhases            []string
	IgnorePreflightErrors []string
	DryRun                bool // for the command that chooses between acting and recording parts; nothing else reads it

	Timeouts Limits
	Paths    Paths
}

// DefaultMachine is a host with the default paths and timeouts.
func DefaultMachine() *Machine { return &Machine{Timeouts: DefaultLimits(), Paths: DefaultPaths()} }

// With returns a copy of the machine with a change, as Node.With does.
func (m *Machine) With(change func(*Machine)) *Machine {
	changed := *m
	change(&changed)
	return &changed
}

// Join holds the facts with which a node joins an existing cluster.
type Join struct {
	// Began is when the run began. A kubelet that has joined reports to the cluster after that.
	Began  time.Time
	Server string // the API's URL
	CA     []byte // the PEM bundle of the certificates discovery trusts
	CAPath string // the CA's file on the node: /etc/kubernetes/pki/ca.crt by default
	// Kubeconfig is the kubelet's file for requesting its certificate: the API's URL, the CA, and a token or other credentials.
	Kubeconfig Secret
	// Rejoins reports whether Kubeconfig has the kubelet's own certificate instead, as this host has joined before.
	Rejoins bool
	// Shared are the files control planes share, each encrypted with the certificate key; nil if the cluster shares none.
	Shared map[string][]byte
	// NodeGone reports whether this joined host's Node was deleted. A kubelet registers a Node only when it starts.
	NodeGone bool
	// Marked reports whether the cluster has a Node of this name, marked as a control plane.
	Marked bool
	// Assumed reports whether the cluster wasn't contacted, and defaults and placeholders are used instead, as only a plan does.
	Assumed bool
}

// Token is a bootstrap token for init to create.
type Token struct {
	ID     string // public: six characters of [a-z0-9]
	Secret Secret // sixteen characters of [a-z0-9]
	// Generated reports whether the token was generated: a valid token from an earlier run can then take its place.
	Generated   bool
	Description string
	TTL         time.Duration // zero for a token that never expires, unless Expires is set
	Expires     time.Time
	Usages      []string
	Groups      []string
}

// Limits are the configured Timeouts, all set.
type Limits struct {
	ControlPlaneComponentHealthCheck time.Duration
	KubeletHealthCheck               time.Duration
	KubernetesAPICall                time.Duration
	EtcdAPICall                      time.Duration
	TLSBootstrap                     time.Duration
	Discovery                        time.Duration
	UpgradeManifests                 time.Duration
}

// Paths are Slipway's directories and files on a host.
type Paths struct {
	Kubernetes string // /etc/kubernetes
	Manifests  string // /etc/kubernetes/manifests
	PKI        string // the certificates directory: /etc/kubernetes/pki by default
	// Kubeconfigs is the directory for kubeconfig files: /etc/kubernetes unless --kubeconfig-dir is given.
	Kubeconfigs string
	Kubelet     string // /var/lib/kubelet
	// AdminKubeconfig is the administrator's kubeconfig for API calls: /etc/kubernetes/admin.conf unless --kubeconfig is given.
	AdminKubeconfig string
}

// DefaultPaths are the paths of a node whose certificates directory and flags don't say otherwise.
func DefaultPaths() Paths {
	return Paths{
		Kubernetes: DefaultKubernetesDir, Manifests: path.Join(DefaultKubernetesDir, "manifests"), PKI: DefaultCertificatesDir,
		Kubeconfigs: DefaultKubernetesDir, Kubelet: DefaultKubeletDir, AdminKubeconfig: DefaultAdminKubeconfig,
	}
}

// StaticPod is a component's static Pod.
func (p Paths) StaticPod(component string) string { return path.Join(p.Manifests, component+".yaml") }

// KubeletKubeconfig is the kubelet's kubeconfig file.
func (p Paths) KubeletKubeconfig() string { return path.Join(p.Kubeconfigs, "kubelet.conf") }

// BootstrapKubeconfig is the kubeconfig file a kubelet uses to request its first certificate.
func (p Paths) BootstrapKubeconfig() string {
	return path.Join(p.Kubeconfigs, "bootstrap-kubelet.conf")
}

// KubeletConfig is the kubelet's configuration file.
func (p Paths) KubeletConfig() string { return path.Join(p.Kubelet, "config.yaml") }

// KubeletFlags is the file with the kubelet's flags.
func (p Paths) KubeletFlags() string { return path.Join(p.Kubelet, "kubeadm-flags.env") }

// InstanceConfig is the file with the kubelet's settings of this node only.
func (p Paths) InstanceConfig() string { return path.Join(p.Kubelet, "instance-config.yaml") }

// Values derived from a validated Node.

// ServiceSubnets returns the service networks, primary family first.
func (n *Node) ServiceSubnets() []netip.Prefix { return prefixes(n.Cluster.Networking.ServiceSubnet) }

// PodSubnets returns the Pod networks, primary family first; none if the user set none.
func (n *Node) PodSubnets() []netip.Prefix { return prefixes(n.Cluster.Networking.PodSubnet) }

// APIServiceIP is the address of the Service default/kubernetes: the first of the primary service network.
func (n *Node) APIServiceIP() netip.Addr { return nthAddress(n.ServiceSubnets()[0], 1) }

// ClusterDNSIPs are the DNS Service's possible addresses: the tenth of each service network.
func (n *Node) ClusterDNSIPs() []netip.Addr {
	var ips []netip.Addr
	for _, p := range n.ServiceSubnets() {
		ips = append(ips, nthAddress(p, 10))
	}
	return ips
}

// Endpoint is the host:port of the cluster's API: the control plane endpoint, or this node's if there's none.
func (n *Node) Endpoint() string {
	return cmp.Or(withPort(n.Cluster.ControlPlaneEndpoint, n.BindPort), n.LocalEndpoint())
}

// EndpointHost is the control plane endpoint's host; empty without an endpoint.
func (n *Node) EndpointHost() string {
	host, _, _ := splitHostPort(n.Cluster.ControlPlaneEndpoint)
	return host
}

// LocalEndpoint is the host:port of this node's own API server.
func (n *Node) LocalEndpoint() string {
	return net.JoinHostPort(n.AdvertiseAddress.String(), strconv.Itoa(int(n.BindPort)))
}

func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// nthAddress counts from 0.
func nthAddress(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// GeneratedFor returns the node as init at another version would have left it, with kube-proxy's generated settings.
func (n *Node) GeneratedFor(version string) *Node {
	out := *n
	out.Cluster.KubernetesVersion = version
	out.KubeProxy, out.KubeProxyGiven = kubeproxy.KubeProxyConfiguration{}, false
	defaultKubeProxy(&out.KubeProxy, &out.Cluster, out.AdvertiseAddress)
	out.Extras = maps.Clone(n.Extras)
	delete(out.Extras, kindKubeProxy)
	return &out
}

const redacted = "[redacted]"

// Secret holds a value no fmt verb, encoder or log prints. Only Reveal returns it, so a search for that word finds every use.
type Secret struct{ value string }

var (
	_ fmt.Formatter  = Secret{}
	_ json.Marshaler = Secret{}
)

func NewSecret(value string) Secret { return Secret{value} }

func (s Secret) Reveal() string { return s.value }

func (s Secret) IsZero() bool { return s.value == "" }

// Format prints a placeholder for every verb, including %#v and %+v.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
