// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
)

// Assume marks the plan as one for an assumed cluster, if node comes from one. Its values from the cluster become placeholders.
func (p *Plan) Assume(node *config.Node) {
	if node.Join != nil && node.Join.Assumed {
		p.assumed = node
	}
}

// markAssumed replaces values that depend on a cluster Slipway didn't ask with placeholders.
func (p *Plan) markAssumed(s *step) {
	if s.Image != "" {
		name, _, _ := strings.Cut(path.Base(s.Image), ":")
		s.Image = fromCluster("the image of " + name)
		s.title = string(host.Pull) + " " + s.Image
	}
	if s.Action != string(host.Write) || s.Secret {
		return
	}
	if source := sourceOf(p.assumed, s.Path); source != "" {
		s.Content = fromCluster(source) + "\n"
		s.body = s.Content
	}
}

func fromCluster(what string) string { return "<from the cluster: " + what + ">" }

// sourceOf names the cluster object that determines a file. It's empty if this node's own configuration does.
func sourceOf(n *config.Node, file string) string {
	p := n.Paths
	isPKI := strings.HasPrefix(file, p.PKI+"/")
	switch {
	case n.ControlPlane && pki.IsShared(n, file):
		return "Secret kube-system/kubeadm-certs"
	case file == n.Join.CAPath:
		return "its CA"
	case isPKI, filepath.Dir(file) == p.Manifests:
		return config.ClusterSource
	case file == filepath.Join(p.Kubelet, "config.yaml"):
		return config.KubeletSource
	}
	return ""
}
