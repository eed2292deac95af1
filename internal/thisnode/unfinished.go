// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// JoinUnfinished is the path of a file that exists from the start of a control plane's first join until its components are
// healthy. Nothing else distinguishes a broken control plane from a complete one: its kubelet registers its Node before they're
// healthy, and administrators may remove the Node's marks afterwards. Nodes joined by kubeadm or an older Slipway lack the file.
func JoinUnfinished(n *config.Node) string {
	return filepath.Join(n.Paths.Kubelet, "slipway-join-unfinished")
}

// SeemsUnfinished reports whether the init or join that began to make this host the node n describes didn't finish, as far as
// this host shows.
//
// After an init, kubelet.conf names the certificate the kubelet rotates. If it doesn't rotate any, only the cluster knows whether
// the init finished. A join has finished once the kubelet has its certificate and has registered its Node, and a control plane's
// components have been healthy. Its marks say less: they can be left out, or removed. A control plane that has joined still has
// them if it loses the certificate.
func SeemsUnfinished(h host.Host, n *config.Node) bool {
	switch {
	case n.Upgrade != nil || n.Reset != nil:
		return false
	case n.Join != nil && joinUnfinished(h, n):
		return true
	case n.Join != nil && WasMember(h, n):
		return h.Made(BootstrapConf(n)) && n.Join.NodeGone
	case n.Join != nil:
		return h.Made(BootstrapConf(n)) || !n.Join.Marked
	}
	path := KubeletConf(n)
	data, err := h.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return !IsControlPlane(h)
	}
	if err != nil || !h.Unchanged(path) {
		return false
	}
	_, elsewhere, err := kubeconfig.ClientCertificate(data)
	return err == nil && elsewhere == ""
}

func joinUnfinished(h host.Host, n *config.Node) bool {
	_, err := h.Lstat(JoinUnfinished(n))
	return n.ControlPlane && err == nil
}
