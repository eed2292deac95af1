// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"cmp"
	"context"
	"fmt"
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
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// New returns the move that the operator wants, and the node at its next address. On a control plane, it finishes an interrupted one,
// which its journal has from before the first change until the end. Once the static Pods have changed, nothing else knows the former
// address.
func New(h host.Host, n *config.Node, wanted Move) (*Move, *config.Node, error) {
	if !wanted.To.IsValid() {
		return &wanted, n, nil
	}
	m, err := readJournal(h, n)
	if err != nil {
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
	slices.SortStableFunc(m.From, netip.Addr.Compare)
	m.From, m.To = slices.Compact(m.From), wanted.To
	m.NodeIP = cmp.Or(wanted.NodeIP, m.ReplaceAddresses(m.NodeIP)) // the interrupted move's may be an address that the host has no longer
	m.Server = cmp.Or(wanted.Server, m.ReplaceAddresses(m.Server))
	return m, n.With(func(n *config.Node) { n.FormerAddresses, n.AdvertiseAddress = m.From, m.To }), nil
}

// readJournal returns the move that was interrupted, or an empty one. It refuses another member's: its addresses may be other hosts'
// by now.
func readJournal(h host.Host, n *config.Node) (*Move, error) {
	m, path := &Move{}, node.MoveJournalPath(n.Paths)
	if _, err := ownership.ReadYAML(h, path, m); err != nil {
		return nil, err
	}
	data, err := node.OwnEtcdData(&step.Env{Config: n, Host: h})
	if err != nil || data.Member == 0 {
		return m, host.IgnoreForbidden(err)
	}
	member := fmt.Sprintf("%x", data.Member)
	if m.Member != "" && m.Member != member {
		return nil, fault.New(fmt.Sprintf("%s has an interrupted move of etcd's member %s, and this host's is %s now", path, m.Member, member),
			"if this host was reset or joined again since, remove the file; if its etcd was restored, remove `member` from the file; then run the same command again")
	}
	m.Member = member
	return m, nil
}

func (m *Move) record(_ context.Context, env *step.Env) error {
	if len(m.From) == 0 {
		return nil
	}
	path := node.MoveJournalPath(env.Config.Paths)
	if err := env.Host.EnsureDir(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return ownership.WriteYAML(env.Host, path, m)
}
