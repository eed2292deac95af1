// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// journalPath has the move from before its first change until its end. Once the static Pods have changed, nothing else knows the
// former address.
func journalPath(n *config.Node) string {
	return filepath.Join(n.Paths.Kubernetes, "tmp", "slipway-address.yaml")
}

// New returns the move that the operator wants, and the node at its next address. On a control plane, it finishes an interrupted one.
func New(h host.Host, n *config.Node, wanted Move) (*Move, *config.Node, error) {
	if !wanted.To.IsValid() {
		return &wanted, n, nil
	}
	m := &Move{}
	if _, err := ownership.ReadYAML(h, journalPath(n), m); err != nil {
		return nil, nil, err
	}
	if m.To.IsValid() {
		m.From = append(m.From, m.To)
	}
	pod, found := thisnode.StaticPod(h, n.Paths.StaticPod(manifests.APIServerName))
	if !found {
		return nil, nil, fault.New("this host has no static Pod of an API server", "on a worker, the address is the kubelet's: --node-ip")
	}
	advertised, err := netip.ParseAddr(manifests.FlagOf(pod, "advertise-address"))
	if err != nil {
		return nil, nil, errors.Wrapf(err, "%s: --advertise-address", n.Paths.StaticPod(manifests.APIServerName))
	}
	m.From = slices.DeleteFunc(append(m.From, advertised), func(a netip.Addr) bool { return a == wanted.To })
	slices.SortFunc(m.From, netip.Addr.Compare)
	m.From, m.To = slices.Compact(m.From), wanted.To
	m.NodeIP, m.Server = cmp.Or(wanted.NodeIP, m.NodeIP), cmp.Or(wanted.Server, m.Server)
	return m, n.With(func(n *config.Node) { n.FormerAddresses, n.AdvertiseAddress = m.From, m.To }), nil
}

func (m *Move) record(_ context.Context, env *step.Env) error {
	if len(m.From) == 0 {
		return nil
	}
	path := journalPath(env.Config)
	if err := env.Host.EnsureDir(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return ownership.WriteYAML(env.Host, path, m)
}
