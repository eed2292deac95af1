// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The documents of kubeadm.k8s.io/v1beta4, field by field:
// https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/

// InitConfiguration configures how init makes this node the first of a cluster.
type InitConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	BootstrapTokens  []BootstrapToken        `json:"bootstrapTokens,omitempty"`
	DryRun           bool                    `json:"dryRun,omitempty"`
	NodeRegistration NodeRegistrationOptions `json:"nodeRegistration,omitempty"`
	LocalAPIEndpoint APIEndpoint             `json:"localAPIEndpoint,omitempty"`
	CertificateKey   string                  `json:"certificateKey,omitempty"`
	SkipPhases       []string                `json:"skipPhases,omitempty"`
	Patches          *Patches                `json:"patches,omitempty"`
	Timeouts         *Timeouts               `json:"timeouts,omitempty"`
}

// ClusterConfiguration is the configuration all nodes of a cluster share. The ConfigMap kube-system/kubeadm-config stores it.
type ClusterConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Etcd                 Etcd                  `json:"etcd,omitempty"`
	Networking           Networking            `json:"networking,omitempty"`
	KubernetesVersion    string                `json:"kubernetesVersion,omitempty"`
	ControlPlaneEndpoint string                `json:"controlPlaneEndpoint,omitempty"`
	APIServer            APIServer             `json:"apiServer,omitempty"`
	ControllerManager    ControlPlaneComponent `json:"controllerManager,omitempty"`
	Scheduler            ControlPlaneComponent `json:"scheduler,omitempty"`
	DNS                  DNS                   `json:"dns,omitempty"`
	Proxy                Proxy                 `json:"proxy,omitempty"`
	CertificatesDir      string                `json:"certificatesDir,omitempty"`
	ImageRepository      string                `json:"imageRepository,omitempty"`
	FeatureGates         map[string]bool       `json:"featureGates,omitempty"`
	ClusterName          string                `json:"clusterName,omitempty"`
	EncryptionAlgorithm  EncryptionAlgorithm   `json:"encryptionAlgorithm,omitempty"`

	CertificateValidityPeriod   *metav1.Duration `json:"certificateValidityPeriod,omitempty"`
	CACertificateValidityPeriod *metav1.Duration `json:"caCertificateValidityPeriod,omitempty"`
}

// EncryptionAlgorithm is the type and size of generated keys.
type EncryptionAlgorithm string

// The algorithms of v1beta4.
const (
	RSA2048   EncryptionAlgorithm = "RSA-2048"
	RSA3072   EncryptionAlgorithm = "RSA-3072"
	RSA4096   EncryptionAlgorithm = "RSA-4096"
	ECDSAP256 EncryptionAlgorithm = "ECDSA-P256"
	ECDSAP384 EncryptionAlgorithm = "ECDSA-P384"
)

// ControlPlaneComponent configures a control plane container.
type ControlPlaneComponent struct {
	ExtraArgs    []Arg           `json:"extraArgs,omitempty"`
	ExtraVolumes []HostPathMount `json:"extraVolumes,omitempty"`
	ExtraEnvs    []EnvVar        `json:"extraEnvs,omitempty"`
}

// APIServer adds fields only the API server has.
type APIServer struct {
	ControlPlaneComponent `json:",inline"`

	CertSANs []string `json:"certSANs,omitempty"`
}

// Arg is a command line flag, written --NAME=VALUE. Names may repeat.
type Arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Is reports whether the flag has this name. Components take underscores for dashes.
func (a Arg) Is(name string) bool { return strings.ReplaceAll(a.Name, "_", "-") == name }

// Words returns flags as words of a command line.
func Words(args []Arg) []string {
	var words []string
	for _, a := range args {
		words = append(words, "--"+a.Name+"="+a.Value)
	}
	return words
}

type EnvVar struct {
	corev1.EnvVar `json:",inline"`
}

// HostPathMount mounts a path of the host into a control plane container.
type HostPathMount struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly,omitempty"`
	PathType  corev1.HostPathType `json:"pathType,omitempty"`
}

// DNS says whether CoreDNS is installed, and configures its image.
type DNS struct {
	ImageMeta `json:",inline"`

	Disabled bool `json:"disabled,omitempty"`
}

// Proxy says whether kube-proxy is installed.
type Proxy struct {
	Disabled bool `json:"disabled,omitempty"`
}

// ImageMeta overrides the source of an image.
type ImageMeta struct {
	ImageRepository string `json:"imageRepository,omitempty"`
	ImageTag        string `json:"imageTag,omitempty"`
}

// Networking configures the cluster's networks. A subnet may list a network of each IP family, separated by a comma.
type Networking struct {
	ServiceSubnet string `json:"serviceSubnet,omitempty"`
	PodSubnet     string `json:"podSubnet,omitempty"`
	DNSDomain     string `json:"dnsDomain,omitempty"`
}

// Etcd is either local, as a static Pod, or external. Exactly one is set.
type Etcd struct {
	Local    *LocalEtcd    `json:"local,omitempty"`
	External *ExternalEtcd `json:"external,omitempty"`
}

// LocalEtcd configures the etcd member on each control plane node.
type LocalEtcd struct {
	ImageMeta `json:",inline"`

	DataDir        string   `json:"dataDir"`
	ExtraArgs      []Arg    `json:"extraArgs,omitempty"`
	ExtraEnvs      []EnvVar `json:"extraEnvs,omitempty"`
	ServerCertSANs []string `json:"serverCertSANs,omitempty"`
	PeerCertSANs   []string `json:"peerCertSANs,omitempty"`
}

// ExternalEtcd locates an etcd that's managed elsewhere.
type ExternalEtcd struct {
	Endpoints     []string `json:"endpoints"`
	HTTPEndpoints []string `json:"httpEndpoints,omitempty"`
	CAFile        string   `json:"caFile"`
	CertFile      string   `json:"certFile"`
	KeyFile       string   `json:"keyFile"`
}

// APIEndpoint is where this node's API server listens.
type APIEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	BindPort         int32  `json:"bindPort,omitempty"`
}

// NodeRegistrationOptions says how this node registers. Nil taints become the role's default; an empty list means no taints.
type NodeRegistrationOptions struct {
	Name                  string            `json:"name,omitempty"`
	CRISocket             string            `json:"criSocket,omitempty"`
	Taints                []corev1.Taint    `json:"taints"`
	KubeletExtraArgs      []Arg             `json:"kubeletExtraArgs,omitempty"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSerial       *bool             `json:"imagePullSerial,omitempty"`
}

// BootstrapToken is a token for joining nodes.
type BootstrapToken struct {
	Token       string           `json:"token"`
	Description string           `json:"description,omitempty"`
	TTL         *metav1.Duration `json:"ttl,omitempty"`
	Expires     *metav1.Time     `json:"expires,omitempty"`
	Usages      []string         `json:"usages,omitempty"`
	Groups      []string         `json:"groups,omitempty"`
}

// JoinConfiguration configures how join makes this host a node of a cluster.
type JoinConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	DryRun           bool                    `json:"dryRun,omitempty"`
	NodeRegistration NodeRegistrationOptions `json:"nodeRegistration,omitempty"`
	CACertPath       string                  `json:"caCertPath,omitempty"`
	Discovery        Discovery               `json:"discovery"`
	ControlPlane     *JoinControlPlane       `json:"controlPlane,omitempty"`
	SkipPhases       []string                `json:"skipPhases,omitempty"`
	Patches          *Patches                `json:"patches,omitempty"`
	Timeouts         *Timeouts               `json:"timeouts,omitempty"`
}

// JoinControlPlane is set if the joining node becomes a control plane.
type JoinControlPlane struct {
	LocalAPIEndpoint APIEndpoint `json:"localAPIEndpoint,omitempty"`
	CertificateKey   string      `json:"certificateKey,omitempty"`
}

// Discovery configures how a joining node finds and verifies the cluster.
type Discovery struct {
	BootstrapToken    *BootstrapTokenDiscovery `json:"bootstrapToken,omitempty"`
	File              *FileDiscovery           `json:"file,omitempty"`
	TLSBootstrapToken string                   `json:"tlsBootstrapToken,omitempty"`
}

// BootstrapTokenDiscovery trusts cluster information signed with a token.
type BootstrapTokenDiscovery struct {
	Token                    string   `json:"token"`
	APIServerEndpoint        string   `json:"apiServerEndpoint,omitempty"`
	CACertHashes             []string `json:"caCertHashes,omitempty"`
	UnsafeSkipCAVerification bool     `json:"unsafeSkipCAVerification,omitempty"`
}

// FileDiscovery trusts a kubeconfig from a file or an HTTPS URL.
type FileDiscovery struct {
	KubeConfigPath string `json:"kubeConfigPath"`
}

// ResetConfiguration configures how reset undoes init or join.
type ResetConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	CleanupTmpDir         bool      `json:"cleanupTmpDir,omitempty"`
	CertificatesDir       string    `json:"certificatesDir,omitempty"`
	CRISocket             string    `json:"criSocket,omitempty"`
	DryRun                bool      `json:"dryRun,omitempty"`
	Force                 bool      `json:"force,omitempty"`
	IgnorePreflightErrors []string  `json:"ignorePreflightErrors,omitempty"`
	SkipPhases            []string  `json:"skipPhases,omitempty"`
	UnmountFlags          []string  `json:"unmountFlags,omitempty"`
	Timeouts              *Timeouts `json:"timeouts,omitempty"`
}

// Patches locates the directory of patches for generated files.
type Patches struct {
	Directory string `json:"directory,omitempty"`
}

// Timeouts limit every wait of a run.
type Timeouts struct {
	ControlPlaneComponentHealthCheck *metav1.Duration `json:"controlPlaneComponentHealthCheck,omitempty"`
	KubeletHealthCheck               *metav1.Duration `json:"kubeletHealthCheck,omitempty"`
	KubernetesAPICall                *metav1.Duration `json:"kubernetesAPICall,omitempty"`
	EtcdAPICall                      *metav1.Duration `json:"etcdAPICall,omitempty"`
	TLSBootstrap                     *metav1.Duration `json:"tlsBootstrap,omitempty"`
	Discovery                        *metav1.Duration `json:"discovery,omitempty"`
	UpgradeManifests                 *metav1.Duration `json:"upgradeManifests,omitempty"`
}
