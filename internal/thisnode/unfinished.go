// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// Unfinished reports whether the init or join that has begun to make this host the node that n describes came to no end, as far
// as this host shows it. Until then, nobody runs anything on the node, so files that Slipway has written and nobody has edited
// are still its own.
//
// An init ends with a kubelet.conf that names the certificate which the kubelet rotates. A join ends when the kubelet has
// reported, and that of a control plane when its Node is marked.
func Unfinished(h host.Host, n *config.Node) bool {
	switch {
	case n.Upgrade != nil || n.Reset != nil:
		return false
	case n.Join != nil:
		return !WasMember(h, n) || h.Made(BootstrapConf(n)) || n.Join.Unmarked
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
