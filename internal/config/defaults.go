// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of kubeadm.k8s.io/v1beta4 that do not depend on the host.
const (
	DefaultImageRepository = "registry.k8s.io"
	DefaultServiceSubnet   = "10.96.0.0/12"
	DefaultDNSDomain       = "cluster.local"
	DefaultBindPort        = 6443
	DefaultTokenTTL        = 24 * time.Hour

	DefaultKubernetesDir   = "/etc/kubernetes"
	DefaultCertificatesDir = "/etc/kubernetes/pki"
	DefaultAdminKubeconfig = "/etc/kubernetes/admin.conf"
	DefaultKubeletDir      = "/var/lib/kubelet"

	defaultEtcdDataDir = "/var/lib/etcd"
	defaultClusterName = "kubernetes"
	defaultCACertPath  = "/etc/kubernetes/pki/ca.crt"
	defaultTokenGroup  = "system:bootstrappers:kubeadm:default-node-token"

	defaultValidity   = 365 * 24 * time.Hour
	defaultCAValidity = 10 * defaultValidity
)

// HostFacts are the facts of the host that defaults depend on. The caller
// finds them out, so that loading a configuration is deterministic.
type HostFacts struct {
	Hostname string
	// IPv4 and IPv6 are the source addresses of each family's default route;
	// zero where there is none.
	IPv4, IPv6 netip.Addr
	// Sockets are those of KnownSockets that exist.
	Sockets []string
	// ResolvConf is the resolv.conf that Pods inherit; empty for the kubelet's
	// own choice. Where systemd-resolved runs, it is ResolvedConf: the file in
	// /etc names a stub that no Pod can reach.
	ResolvConf string
}

// ResolvedConf is where systemd-resolved writes the real name servers.
const ResolvedConf = "/run/systemd/resolve/resolv.conf"

// KnownSockets are the default sockets of containerd, CRI-O and cri-dockerd.
func KnownSockets() []string {
	return []string{
		"/var/run/containerd/containerd.sock",
		"/var/run/crio/crio.sock",
		"/var/run/cri-dockerd.sock",
	}
}

// controlPlaneTaint keeps ordinary Pods away from control planes.
func controlPlaneTaint() corev1.Taint {
	return corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
}

// defaultInit fills what the user left open in an InitConfiguration.
// Tokens get their secrets elsewhere.
func defaultInit(c *InitConfiguration, facts HostFacts, primary netip.Prefix) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindInit}
	defaultRegistration(&c.NodeRegistration, facts, true)
	defaultEndpoint(&c.LocalAPIEndpoint, facts, primary)
	if len(c.BootstrapTokens) == 0 {
		c.BootstrapTokens = make([]BootstrapToken, 1)
	}
	for i := range c.BootstrapTokens {
		defaultToken(&c.BootstrapTokens[i])
	}
	c.Timeouts = defaultTimeouts(c.Timeouts)
}

func defaultToken(t *BootstrapToken) {
	if t.TTL == nil && t.Expires == nil {
		t.TTL = &metav1.Duration{Duration: DefaultTokenTTL}
	}
	if len(t.Usages) == 0 {
		t.Usages = []string{"signing", "authentication"}
	}
	if len(t.Groups) == 0 {
		t.Groups = []string{defaultTokenGroup}
	}
}

// defaultRegistration fills in how the node registers itself. Names of hosts
// are lower case in the API.
func defaultRegistration(r *NodeRegistrationOptions, facts HostFacts, controlPlane bool) {
	r.Name = strings.ToLower(strings.TrimSpace(cmp.Or(r.Name, facts.Hostname)))
	if r.CRISocket == "" {
		socket := KnownSockets()[0]
		if len(facts.Sockets) > 0 {
			socket = facts.Sockets[0]
		}
		r.CRISocket = "unix://" + socket
	}
	if strings.HasPrefix(r.CRISocket, "/") {
		r.CRISocket = "unix://" + r.CRISocket
	}
	if r.Taints == nil && controlPlane {
		r.Taints = []corev1.Taint{controlPlaneTaint()}
	}
	r.ImagePullPolicy = cmp.Or(r.ImagePullPolicy, corev1.PullIfNotPresent)
	if r.ImagePullSerial == nil {
		r.ImagePullSerial = new(true)
	}
}

// defaultEndpoint takes the address of the default route, of the primary
// service network's family where there is one: an API server does not start
// with addresses of different families.
func defaultEndpoint(e *APIEndpoint, facts HostFacts, primary netip.Prefix) {
	e.BindPort = cmp.Or(e.BindPort, DefaultBindPort)
	if e.AdvertiseAddress != "" {
		return
	}
	first, second := facts.IPv4, facts.IPv6
	if primary.Addr().Is6() {
		first, second = second, first
	}
	if addr := cmp.Or(first, second); addr.IsValid() {
		e.AdvertiseAddress = addr.String()
	}
}

func defaultCluster(c *ClusterConfiguration) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindCluster}
	c.KubernetesVersion = cmp.Or(c.KubernetesVersion, DefaultKubernetesVersion)
	c.Networking.ServiceSubnet = cmp.Or(c.Networking.ServiceSubnet, DefaultServiceSubnet)
	c.Networking.DNSDomain = cmp.Or(c.Networking.DNSDomain, DefaultDNSDomain)
	c.CertificatesDir = cmp.Or(c.CertificatesDir, DefaultCertificatesDir)
	c.ImageRepository = cmp.Or(c.ImageRepository, DefaultImageRepository)
	c.ClusterName = cmp.Or(c.ClusterName, defaultClusterName)
	if c.FeatureGates[gateECDSA] {
		c.EncryptionAlgorithm = cmp.Or(c.EncryptionAlgorithm, ECDSAP256)
	}
	c.EncryptionAlgorithm = cmp.Or(c.EncryptionAlgorithm, RSA2048)
	defaultEtcd(&c.Etcd)
	if c.CertificateValidityPeriod == nil {
		c.CertificateValidityPeriod = &metav1.Duration{Duration: defaultValidity}
	}
	if c.CACertificateValidityPeriod == nil {
		c.CACertificateValidityPeriod = &metav1.Duration{Duration: defaultCAValidity}
	}
}

func defaultEtcd(e *Etcd) {
	if e.External == nil && e.Local == nil {
		e.Local = &LocalEtcd{}
	}
	if e.Local != nil {
		e.Local.DataDir = cmp.Or(e.Local.DataDir, defaultEtcdDataDir)
	}
	if e.External != nil && len(e.External.HTTPEndpoints) == 0 {
		e.External.HTTPEndpoints = e.External.Endpoints
	}
}

// withPort gives an endpoint without a port the one of the API server.
func withPort(endpoint string, port int32) string {
	if endpoint == "" {
		return ""
	}
	host, text, err := net.SplitHostPort(endpoint)
	if err != nil {
		host = strings.Trim(endpoint, "[]")
	}
	return net.JoinHostPort(host, cmp.Or(text, strconv.Itoa(int(port))))
}

// defaultLimits are the timeouts of v1beta4.
func defaultLimits() Limits {
	return Limits{
		ControlPlaneComponentHealthCheck: 4 * time.Minute,
		KubeletHealthCheck:               4 * time.Minute,
		KubernetesAPICall:                time.Minute,
		EtcdAPICall:                      2 * time.Minute,
		TLSBootstrap:                     5 * time.Minute,
		Discovery:                        5 * time.Minute,
		UpgradeManifests:                 5 * time.Minute,
	}
}

// timeoutField is one timeout of a configuration with its name and default.
type timeoutField struct {
	name   string
	value  **metav1.Duration
	preset time.Duration
}

func timeoutFields(t *Timeouts) []timeoutField {
	d := defaultLimits()
	return []timeoutField{
		{"controlPlaneComponentHealthCheck", &t.ControlPlaneComponentHealthCheck, d.ControlPlaneComponentHealthCheck},
		{"kubeletHealthCheck", &t.KubeletHealthCheck, d.KubeletHealthCheck},
		{"kubernetesAPICall", &t.KubernetesAPICall, d.KubernetesAPICall},
		{"etcdAPICall", &t.EtcdAPICall, d.EtcdAPICall},
		{"tlsBootstrap", &t.TLSBootstrap, d.TLSBootstrap},
		{"discovery", &t.Discovery, d.Discovery},
		{"upgradeManifests", &t.UpgradeManifests, d.UpgradeManifests},
	}
}

// defaultTimeouts fills in what is not set. Zero means the default too:
// nothing is ever done in no time, and `kubeadm config migrate` writes 0s
// where the user had set nothing.
func defaultTimeouts(t *Timeouts) *Timeouts {
	if t == nil {
		t = &Timeouts{}
	}
	for _, f := range timeoutFields(t) {
		if *f.value == nil || (*f.value).Duration == 0 {
			*f.value = &metav1.Duration{Duration: f.preset}
		}
	}
	return t
}

func limits(t *Timeouts) Limits {
	return Limits{
		ControlPlaneComponentHealthCheck: t.ControlPlaneComponentHealthCheck.Duration,
		KubeletHealthCheck:               t.KubeletHealthCheck.Duration,
		KubernetesAPICall:                t.KubernetesAPICall.Duration,
		EtcdAPICall:                      t.EtcdAPICall.Duration,
		TLSBootstrap:                     t.TLSBootstrap.Duration,
		Discovery:                        t.Discovery.Duration,
		UpgradeManifests:                 t.UpgradeManifests.Duration,
	}
}

func defaultJoin(c *JoinConfiguration, facts HostFacts) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindJoin}
	c.CACertPath = cmp.Or(c.CACertPath, defaultCACertPath)
	defaultRegistration(&c.NodeRegistration, facts, c.ControlPlane != nil)
	if c.ControlPlane != nil {
		defaultEndpoint(&c.ControlPlane.LocalAPIEndpoint, facts, netip.Prefix{})
	}
	if token := c.Discovery.BootstrapToken; token != nil && c.Discovery.File == nil {
		c.Discovery.TLSBootstrapToken = cmp.Or(c.Discovery.TLSBootstrapToken, token.Token)
	}
	c.Timeouts = defaultTimeouts(c.Timeouts)
}

func defaultReset(c *ResetConfiguration, facts HostFacts) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindReset}
	c.CertificatesDir = cmp.Or(c.CertificatesDir, DefaultCertificatesDir)
	registration := NodeRegistrationOptions{CRISocket: c.CRISocket}
	defaultRegistration(&registration, facts, false)
	c.CRISocket = registration.CRISocket
	c.Timeouts = defaultTimeouts(c.Timeouts)
}

func defaultUpgrade(c *UpgradeConfiguration) {
	c.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindUpgrade}
	preset := func(p **bool) {
		if *p == nil {
			*p = new(true)
		}
	}
	preset(&c.Apply.CertificateRenewal)
	preset(&c.Apply.EtcdUpgrade)
	preset(&c.Apply.ImagePullSerial)
	preset(&c.Node.CertificateRenewal)
	preset(&c.Node.EtcdUpgrade)
	preset(&c.Node.ImagePullSerial)
	preset(&c.Plan.EtcdUpgrade)
	c.Apply.ImagePullPolicy = cmp.Or(c.Apply.ImagePullPolicy, corev1.PullIfNotPresent)
	c.Node.ImagePullPolicy = cmp.Or(c.Node.ImagePullPolicy, corev1.PullIfNotPresent)
	c.Timeouts = defaultTimeouts(c.Timeouts)
}
