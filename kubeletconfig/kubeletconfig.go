// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig builds the files in /var/lib/kubelet that the kubelet reads when it starts: configuration in,
// bytes out.
package kubeletconfig

import (
	"fmt"

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
