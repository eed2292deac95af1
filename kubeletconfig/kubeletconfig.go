// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig makes the files that the kubelet reads at its start:
// configuration in, bytes out. Their place is /var/lib/kubelet.
package kubeletconfig

import (
	"fmt"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// New returns an empty document of the type of ConfigYAML, to patch it with.
func New() *kubelet.KubeletConfiguration { return &kubelet.KubeletConfiguration{} }

// ConfigYAML makes config.yaml: the cluster's KubeletConfiguration with this
// node's own settings merged over it.
func ConfigYAML(n *config.Node) ([]byte, error) {
	cfg := n.Kubelet.DeepCopy()
	if n.NodeLocalCRISocket() {
		cfg.ContainerRuntimeEndpoint = n.CRISocket
	}
	data, err := yaml.Marshal(cfg)
	return data, errors.Wrap(err, "cannot encode the KubeletConfiguration")
}

// InstanceConfigYAML makes instance-config.yaml: the settings that are this
// node's own, kept apart so that an upgrade can merge them over the cluster's
// anew. There is no such file without the feature gate NodeLocalCRISocket.
func InstanceConfigYAML(n *config.Node) []byte {
	return fmt.Appendf(nil, "containerRuntimeEndpoint: %q\n", n.CRISocket)
}
