// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Correction is a setting of the cluster that names something which this host doesn't have, and what its kubelet uses
// instead.
type Correction struct {
	Field, Stored string
	// Used is empty if the kubelet does without.
	Used string
}

// Own is what a host has of its own.
type Own struct {
	// Exists reports whether an absolute path exists there.
	Exists func(path string) bool
	// CAPath is where this node has the cluster's CA, or gets it.
	CAPath string
}

// Fit sets in config.yaml what each host decides for itself. In settings that come from the cluster, it corrects paths that
// don't exist on this host. What the user writes for this host, such as a patch, is applied afterwards.
func Fit(data []byte, n *config.Node, own Own) ([]byte, []Correction, error) {
	cfg := New()
	if err := yaml.Unmarshal(data, cfg); err != nil {
		return nil, nil, errors.Wrap(err, "the KubeletConfiguration")
	}
	var made []Correction
	if n.Join != nil || n.Upgrade != nil { // then the settings come from the cluster
		made = correct(cfg, own)
	}
	if cfg.ResolverConfig == nil && own.Exists(config.ResolvedConf) {
		cfg.ResolverConfig = new(config.ResolvedConf)
	}
	for i := range made {
		if made[i].Field == "resolvConf" {
			made[i].Used = defaultResolvConf
			if cfg.ResolverConfig != nil {
				made[i].Used = *cfg.ResolverConfig
			}
		}
	}
	data, err := yaml.Marshal(cfg)
	return data, made, errors.Wrap(err, "cannot encode the KubeletConfiguration")
}

// defaultResolvConf is the file that a kubelet uses without a setting.
const defaultResolvConf = "/etc/resolv.conf"

func correct(cfg *kubelet.KubeletConfiguration, own Own) []Correction {
	var made []Correction
	missing := func(path string) bool { return strings.HasPrefix(path, "/") && !own.Exists(path) }
	if stored := cfg.ResolverConfig; stored != nil && missing(*stored) {
		cfg.ResolverConfig = nil
		made = append(made, Correction{Field: "resolvConf", Stored: *stored})
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
