// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Stored is the change of this node to the cluster's stored configuration. It has no Fields: what the node runs with now is only
// in its files. A worker mustn't read kube-proxy's settings, and no node has any of its own.
func (l Loader) Stored(ctx context.Context) (*Change, []string, error) {
	ofNodes := slices.DeleteFunc(rows(), func(r row) bool { return r.source == config.KubeProxySource })
	c, stored, err := l.read(ctx, ofNodes, nil)
	if err != nil {
		return nil, nil, err
	}
	n, warnings, err := l.node(stored)
	if err != nil {
		return nil, warnings, err
	}
	c.Node = n.With(func(changed *config.Node) {
		version := n.Cluster.KubernetesVersion
		changed.Upgrade = &config.Upgrade{Version: version, From: version, Etcd: true, Before: n, Earlier: l.earlier(c.previous, stored)}
	})
	return c, warnings, nil
}
