// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/host"
)

// staticPodsHere reads the directory as the kubelet does: every file whose name doesn't begin with a dot.
func (c *collector) staticPodsHere() {
	if c.Here == nil {
		return
	}
	dir := c.Here.Node.Paths.Manifests
	entries, err := c.Here.Host.ReadDir(dir)
	if err != nil {
		c.gap(dir, dir, "run this as root", "%s was not checked: %v", dir, err)
		return
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := host.ReadHead(c.Here.Host, path, LargestFile)
		if err != nil {
			c.gap(path, path, "run this as root", "%s was not checked: %v", path, err)
			continue
		}
		var pod corev1.Pod
		if yaml.Unmarshal(data, &pod) == nil && pod.Kind == "Pod" {
			pod.Spec.NodeName = c.Here.Node.Name
			c.inputs.StaticPods = append(c.inputs.StaticPods, breakages.StaticPod{Where: path, Pod: pod})
		}
	}
}
