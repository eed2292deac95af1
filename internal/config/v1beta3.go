// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The documents of kubeadm.k8s.io/v1beta3 that differ from v1beta4's:
// https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta3/

type v1beta3Init struct {
	metav1.TypeMeta `json:",inline"`

	BootstrapTokens  []BootstrapToken    `json:"bootstrapTokens,omitempty"`
	NodeRegistration v1beta3Registration `json:"nodeRegistration,omitempty"`
	LocalAPIEndpoint APIEndpoint         `json:"localAPIEndpoint,omitempty"`
	CertificateKey   string              `json:"certificateKey,omitempty"`
	SkipPhases       []string            `json:"skipPhases,omitempty"`
	Patches          *Patches            `json:"patches,omitempty"`
}

type v1beta3Cluster struct {
	metav1.TypeMeta `json:",inline"`

	Etcd                 v1beta3Etcd      `json:"etcd,omitempty"`
	Networking           Networking       `json:"networking,omitempty"`
	KubernetesVersion    string           `json:"kubernetesVersion,omitempty"`
	ControlPlaneEndpoint string           `json:"controlPlaneEndpoint,omitempty"`
	APIServer            v1beta3APIServer `json:"apiServer,omitempty"`
	ControllerManager    v1beta3Component `json:"controllerManager,omitempty"`
	Scheduler            v1beta3Component `json:"scheduler,omitempty"`
	DNS                  v1beta3DNS       `json:"dns,omitempty"`
	CertificatesDir      string           `json:"certificatesDir,omitempty"`
	ImageRepository      string           `json:"imageRepository,omitempty"`
	FeatureGates         map[string]bool  `json:"featureGates,omitempty"`
	ClusterName          string           `json:"clusterName,omitempty"`
}

type v1beta3Component struct {
	ExtraArgs    map[string]string `json:"extraArgs,omitempty"`
	ExtraVolumes []HostPathMount   `json:"extraVolumes,omitempty"`
}

type v1beta3APIServer struct {
	v1beta3Component `json:",inline"`

	CertSANs               []string         `json:"certSANs,omitempty"`
	TimeoutForControlPlane *metav1.Duration `json:"timeoutForControlPlane,omitempty"`
}

type v1beta3DNS struct {
	ImageMeta `json:",inline"`
}

type v1beta3Etcd struct {
	Local    *v1beta3LocalEtcd    `json:"local,omitempty"`
	External *v1beta3ExternalEtcd `json:"external,omitempty"`
}

type v1beta3LocalEtcd struct {
	ImageMeta `json:",inline"`

	DataDir        string            `json:"dataDir"`
	ExtraArgs      map[string]string `json:"extraArgs,omitempty"`
	ServerCertSANs []string          `json:"serverCertSANs,omitempty"`
	PeerCertSANs   []string          `json:"peerCertSANs,omitempty"`
}

type v1beta3ExternalEtcd struct {
	Endpoints []string `json:"endpoints"`
	CAFile    string   `json:"caFile"`
	CertFile  string   `json:"certFile"`
	KeyFile   string   `json:"keyFile"`
}

type v1beta3Registration struct {
	Name                  string            `json:"name,omitempty"`
	CRISocket             string            `json:"criSocket,omitempty"`
	Taints                []corev1.Taint    `json:"taints"`
	KubeletExtraArgs      map[string]string `json:"kubeletExtraArgs,omitempty"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

type v1beta3Join struct {
	metav1.TypeMeta `json:",inline"`

	NodeRegistration v1beta3Registration `json:"nodeRegistration,omitempty"`
	CACertPath       string              `json:"caCertPath,omitempty"`
	Discovery        v1beta3Discovery    `json:"discovery"`
	ControlPlane     *JoinControlPlane   `json:"controlPlane,omitempty"`
	SkipPhases       []string            `json:"skipPhases,omitempty"`
	Patches          *Patches            `json:"patches,omitempty"`
}

type v1beta3Discovery struct {
	BootstrapToken    *BootstrapTokenDiscovery `json:"bootstrapToken,omitempty"`
	File              *FileDiscovery           `json:"file,omitempty"`
	TLSBootstrapToken string                   `json:"tlsBootstrapToken,omitempty"`
	Timeout           *metav1.Duration         `json:"timeout,omitempty"`
}

func (d *documents) addV1beta3(dec *decoder, node *yaml.Node, kind string) {
	switch kind {
	case kindInit:
		d.init = initFromV1beta3(dec, decodeNew[v1beta3Init](dec, node))
	case kindCluster:
		old := decodeNew[v1beta3Cluster](dec, node)
		d.cluster = clusterFromV1beta3(dec, old)
		d.healthCheck = old.APIServer.TimeoutForControlPlane
	case kindJoin:
		d.join = joinFromV1beta3(dec, decodeNew[v1beta3Join](dec, node))
	}
}

func initFromV1beta3(dec *decoder, old *v1beta3Init) *InitConfiguration {
	return &InitConfiguration{
		BootstrapTokens:  old.BootstrapTokens,
		NodeRegistration: registrationFromV1beta3(dec, old.NodeRegistration),
		LocalAPIEndpoint: old.LocalAPIEndpoint,
		CertificateKey:   old.CertificateKey,
		SkipPhases:       old.SkipPhases,
		Patches:          old.Patches,
	}
}

func clusterFromV1beta3(dec *decoder, old *v1beta3Cluster) *ClusterConfiguration {
	component := func(path string, c v1beta3Component) ControlPlaneComponent {
		return ControlPlaneComponent{ExtraArgs: dec.argsFromMap(path+".extraArgs", c.ExtraArgs), ExtraVolumes: c.ExtraVolumes}
	}
	c := &ClusterConfiguration{
		Networking:           old.Networking,
		KubernetesVersion:    old.KubernetesVersion,
		ControlPlaneEndpoint: old.ControlPlaneEndpoint,
		APIServer: APIServer{
			ControlPlaneComponent: component("apiServer", old.APIServer.v1beta3Component),
			CertSANs:              old.APIServer.CertSANs,
		},
		ControllerManager: component("controllerManager", old.ControllerManager),
		Scheduler:         component("scheduler", old.Scheduler),
		DNS:               DNS{ImageMeta: old.DNS.ImageMeta},
		CertificatesDir:   old.CertificatesDir,
		ImageRepository:   old.ImageRepository,
		FeatureGates:      old.FeatureGates,
		ClusterName:       old.ClusterName,
	}
	if l := old.Etcd.Local; l != nil {
		c.Etcd.Local = &LocalEtcd{
			ImageMeta: l.ImageMeta, DataDir: l.DataDir, ExtraArgs: dec.argsFromMap("etcd.local.extraArgs", l.ExtraArgs),
			ServerCertSANs: l.ServerCertSANs, PeerCertSANs: l.PeerCertSANs,
		}
	}
	if e := old.Etcd.External; e != nil {
		c.Etcd.External = &ExternalEtcd{Endpoints: e.Endpoints, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
	}
	return c
}

func joinFromV1beta3(dec *decoder, old *v1beta3Join) *JoinConfiguration {
	c := &JoinConfiguration{
		NodeRegistration: registrationFromV1beta3(dec, old.NodeRegistration),
		CACertPath:       old.CACertPath,
		Discovery: Discovery{
			BootstrapToken: old.Discovery.BootstrapToken, File: old.Discovery.File, TLSBootstrapToken: old.Discovery.TLSBootstrapToken,
		},
		ControlPlane: old.ControlPlane,
		SkipPhases:   old.SkipPhases,
		Patches:      old.Patches,
	}
	if old.Discovery.Timeout != nil {
		c.Timeouts = &Timeouts{Discovery: old.Discovery.Timeout}
	}
	return c
}

func registrationFromV1beta3(dec *decoder, old v1beta3Registration) NodeRegistrationOptions {
	return NodeRegistrationOptions{
		Name: old.Name, CRISocket: old.CRISocket, Taints: old.Taints,
		KubeletExtraArgs:      dec.argsFromMap("nodeRegistration.kubeletExtraArgs", old.KubeletExtraArgs),
		IgnorePreflightErrors: old.IgnorePreflightErrors, ImagePullPolicy: old.ImagePullPolicy,
	}
}

// argsFromMap converts v1beta3's arguments to a list, sorted by name, and records each one's line.
func (d *decoder) argsFromMap(path string, args map[string]string) []Arg {
	var list []Arg
	for i, name := range keysOf(args) {
		d.lines[fmt.Sprintf("%s[%d]", path, i)] = d.lines[joinPath(path, printable(name))]
		list = append(list, Arg{Name: name, Value: args[name]})
	}
	return list
}
