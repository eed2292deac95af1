// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Node is the desired state of this node and of its cluster: what the user's
// documents, the flags, the defaults and the host add up to. It is made once
// by LoadInit (or, for a joining node, after discovery) and only read from
// then on.
type Node struct {
	// ControlPlane tells whether the node runs the control plane.
	ControlPlane bool

	// Name is the node's name in the API, a lower-case DNS subdomain.
	Name string
	// Hostname is the host's own name, in lower case. Where it differs from
	// Name, the kubelet must be told the name.
	Hostname string
	// CRISocket is the runtime's endpoint, always with a scheme:
	// unix:///run/containerd/containerd.sock.
	CRISocket string
	// Taints are the node's taints, defaults applied; empty means none.
	Taints []corev1.Taint
	// KubeletExtraArgs are flags for the kubelet's command line, in order.
	KubeletExtraArgs []Arg
	// ImagePullPolicy is IfNotPresent unless the user says otherwise.
	ImagePullPolicy corev1.PullPolicy
	// ImagePullSerial asks to pull one image after another. It is set only if
	// the user's file says imagePullSerial: true in so many words; that value
	// is also v1beta4's default, which is not taken for a wish.
	ImagePullSerial bool

	// AdvertiseAddress and BindPort are where this node's API server is found.
	AdvertiseAddress netip.Addr
	BindPort         int32

	// Cluster is what all nodes share, defaulted; its KubernetesVersion is
	// an exact version with a leading v.
	Cluster ClusterConfiguration
	// Kubelet is the cluster-wide KubeletConfiguration, defaulted.
	Kubelet kubelet.KubeletConfiguration
	// KubeProxy is the cluster-wide KubeProxyConfiguration, defaulted.
	KubeProxy kubeproxy.KubeProxyConfiguration
	// KubeletGiven and KubeProxyGiven tell that the user wrote that
	// component's document. One that nobody wrote is marked as generated in
	// the cluster, so that an upgrade may make it anew.
	KubeletGiven, KubeProxyGiven bool

	// BootstrapTokens are to be created by init. At least one; the first is
	// the one that the join command names.
	BootstrapTokens []Token
	// CertificateKey encrypts the uploaded certificates: 32 bytes as hex.
	// Empty when the user gave none and UploadCerts is not set; with it, one
	// is made.
	CertificateKey Secret
	// EnableKubelet asks to make the kubelet's unit start at boot.
	EnableKubelet bool
	// UploadCerts asks init to share the control plane's certificates.
	UploadCerts bool

	// SkipPhases, IgnorePreflightErrors are as the user gave them; the latter
	// in lower case, perhaps "all".
	SkipPhases            []string
	IgnorePreflightErrors []string
	// DryRun asks to change nothing. Only the command that chooses between the
	// real parts and those that record looks at it.
	DryRun bool
	// PatchesDir is the folder of patches, empty for none.
	PatchesDir string
	// SkipTokenPrint and SkipCertificateKeyPrint keep secrets out of the
	// closing words of init.
	SkipTokenPrint          bool
	SkipCertificateKeyPrint bool

	// Join is what a joining node knows of its cluster from discovery; nil for
	// a node that did not look for one.
	Join *Join
	// Reset is what `reset` shall do beyond what it always does; nil for
	// everything else.
	Reset *Reset

	Timeouts Limits
	Paths    Paths

	// Extras is what the cluster's documents have that this version does not
	// know, by kind.
	Extras Extras
}

// Join is how a node gets into a cluster that exists.
type Join struct {
	// Began is when the run began: a kubelet that has joined reports to the
	// cluster after that.
	Began time.Time
	// Server is the URL of the API.
	Server string
	// CA is the PEM bundle of the certificates that discovery trusts.
	CA []byte
	// CAPath is where the node keeps it: /etc/kubernetes/pki/ca.crt unless the
	// configuration says otherwise.
	CAPath string
	// Kubeconfig is the file with which the kubelet asks for its certificate:
	// the API's URL, the CA, and a bootstrap token or other credentials.
	Kubeconfig Secret
	// Shared are the files that control planes share, each encrypted with the
	// certificate key; nil where the cluster shares none.
	Shared map[string][]byte
	// NodeGone tells that this host has joined before, and that its Node was
	// deleted since. A kubelet registers a Node at its start only.
	NodeGone bool
	// Assumed tells that the cluster was not asked: what it would say is the
	// default, and what it would give is made up. It is for plans only.
	Assumed bool
}

// Token is a bootstrap token that init creates.
type Token struct {
	// ID is public: six characters of [a-z0-9].
	ID string
	// Secret is sixteen characters of [a-z0-9].
	Secret Secret
	// Generated tells that nobody chose this token: a valid one that an
	// earlier run left in the cluster serves as well.
	Generated   bool
	Description string
	// TTL is zero for a token that never expires, unless Expires is set.
	TTL     time.Duration
	Expires time.Time
	Usages  []string
	Groups  []string
}

// Limits are the Timeouts of the configuration, all set.
type Limits struct {
	ControlPlaneComponentHealthCheck time.Duration
	KubeletHealthCheck               time.Duration
	KubernetesAPICall                time.Duration
	EtcdAPICall                      time.Duration
	TLSBootstrap                     time.Duration
	Discovery                        time.Duration
	UpgradeManifests                 time.Duration
}

// Paths are the folders and files that Slipway owns on a host.
type Paths struct {
	// Kubernetes is /etc/kubernetes.
	Kubernetes string
	// Manifests is /etc/kubernetes/manifests.
	Manifests string
	// PKI is the certificates' folder: /etc/kubernetes/pki unless the user
	// chose another.
	PKI string
	// Kubeconfigs is where kubeconfig files are written: /etc/kubernetes
	// unless --kubeconfig-dir says otherwise.
	Kubeconfigs string
	// Kubelet is /var/lib/kubelet.
	Kubelet string
	// AdminKubeconfig is the file that API calls use as administrator:
	// /etc/kubernetes/admin.conf unless --kubeconfig says otherwise.
	AdminKubeconfig string
}
