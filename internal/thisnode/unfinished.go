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

// SeemsUnfinished reports whether the init or join that has begun to make this host the node that n describes came to no end, as
// far as this host shows it.
//
// After an init, kubelet.conf names the certificate that the kubelet rotates, unless it doesn't rotate any: so only the cluster
// can say that there was no end. A join has ended once the kubelet has its certificate and has registered its Node. Its marks say
// less: they can be left out, or taken away. If the certificate is lost, a control plane that has joined still has them.
func SeemsUnfinished(h host.Host, n *config.Node) bool {
	switch {
	case n.Upgrade != nil || n.Reset != nil:
		return false
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
