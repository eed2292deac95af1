// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig builds the files that the kubelet reads when it starts: ConfigYAML and InstanceConfigYAML make its
// settings, FlagsEnv makes kubeadm-flags.env, and Unit and DropIn make its systemd files. AdaptToHost fits the cluster's settings
// to this host; WithoutLeftovers drops flags of older versions. It does no I/O: phases/kubelet writes the files.
package kubeletconfig

import (
	"fmt"
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// New returns an empty document of ConfigYAML's type, the base for patches.
func New() *kubelet.KubeletConfiguration { return &kubelet.KubeletConfiguration{} }

// ConfigYAML returns config.yaml: the cluster's KubeletConfiguration with this node's settings merged over it.
func ConfigYAML(n *config.Node) ([]byte, error) {
	cfg := n.Kubelet.DeepCopy()
	cfg.ContainerRuntimeEndpoint = n.CRISocket
	data, err := yaml.Marshal(cfg)
	return data, errors.Wrap(err, "cannot encode the KubeletConfiguration")
}

// InstanceConfigYAML returns instance-config.yaml: this node's settings in their own file, so that an upgrade can merge them over
// the cluster's again.
func InstanceConfigYAML(n *config.Node) []byte {
	return fmt.Appendf(nil, "containerRuntimeEndpoint: %q\n", n.CRISocket)
}

// Correction replaces a setting from the cluster that names something this host doesn't have.
type Correction struct {
	Field, Stored string
	// Used is the kubelet's substitute; empty if it does without.
	Used string
}

// Own holds this host's own facts.
type Own struct {
	// Exists reports whether an absolute path exists on this host.
	Exists func(path string) bool
	// CAPath is the node's copy of the cluster's CA; it may not be there yet.
	CAPath string
}

// AdaptToHost adds each host's own settings to config.yaml, and corrects settings from the cluster if their paths don't exist on
// this host. Anything the user writes for this host, such as a patch, is applied later.
func AdaptToHost(data []byte, n *config.Node, own Own) ([]byte, []Correction, error) {
	cfg := New()
	if err := yaml.Unmarshal(data, cfg); err != nil {
		return nil, nil, errors.Wrap(err, "the KubeletConfiguration")
	}
	var made []Correction
	if n.Join != nil || n.Upgrade != nil { // the settings come from the cluster
		made = correct(cfg, own)
	}
	if cfg.ResolverConfig == nil && own.Exists(config.ResolvedConf) {
		cfg.ResolverConfig = new(config.ResolvedConf)
	}
	data, err := yaml.Marshal(cfg)
	return data, made, errors.Wrap(err, "cannot encode the KubeletConfiguration")
}

// defaultResolvConf is the file a kubelet uses without a setting.
const defaultResolvConf = "/etc/resolv.conf"

func correct(cfg *kubelet.KubeletConfiguration, own Own) []Correction {
	var made []Correction
	missing := func(path string) bool { return strings.HasPrefix(path, "/") && !own.Exists(path) }
	if stored := cfg.ResolverConfig; stored != nil && missing(*stored) {
		cfg.ResolverConfig = nil
		used := defaultResolvConf
		if own.Exists(config.ResolvedConf) { // see Fit
			used = config.ResolvedConf
		}
		made = append(made, Correction{"resolvConf", *stored, used})
	}
	if stored := cfg.ImageServiceEndpoint; missing(strings.TrimPrefix(stored, "unix://")) {
		cfg.ImageServiceEndpoint = ""
		made = append(made, Correction{"imageServiceEndpoint", stored, cfg.ContainerRuntimeEndpoint})
	}
	if ca := &cfg.Authentication.X509.ClientCAFile; own.CAPath != "" && *ca != own.CAPath && missing(*ca) {
		made = append(made, Correction{"authentication.x509.clientCAFile", *ca, own.CAPath})
		*ca = own.CAPath
	}
	return made
}
