// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// controlPlane makes the components run at the address: etcd and the API server together, then the API's clients. Only in its turn does
// a control plane write files for the address: the running API server and etcd read their new certificates at once, and from then on
// nobody trusts them at the former address.
func (m *Move) controlPlane(ctx context.Context, env *step.Env) error {
	components, err := m.components(ctx, env)
	if err == nil && len(components) == 0 { // none is at a former address
		if err = m.write(ctx, env); err == nil {
			components, err = m.components(ctx, env)
		}
	}
	if err != nil {
		return err
	}
	if len(components) == 0 {
		if err := m.moveMember(ctx, env); err != nil {
			return err
		}
		return node.ReleaseInterruptedLease(ctx, env, node.ForConfiguration)
	}
	m.finishMember(ctx, env)
	turn, err := node.AcquireLeaseIfReachable(ctx, env, node.ForConfiguration)
	if err != nil {
		return err
	}
	if err := node.CheckEtcdCanStop(ctx, env, components); err != nil {
		return turn.Cancel(ctx, err)
	}
	turn.KeepOnFailure()
	if err = m.write(ctx, env); err == nil {
		err = m.restart(ctx, env, turn)
	}
	return turn.Release(ctx, env, fault.WithRemedy(err, finishRemedy))
}

// write changes all files but the static Pods, which restart writes.
func (m *Move) write(ctx context.Context, env *step.Env) error {
	if err := m.certificates(env); err != nil {
		return err
	}
	return m.files(ctx, env)
}

// finishMember moves the member if an earlier run was interrupted before it could. It may be in a container from before, and the
// others can do without it only if they know which one it is.
func (m *Move) finishMember(ctx context.Context, env *step.Env) {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	if err := m.moveMember(limited, env); err != nil && ctx.Err() == nil {
		ui.WarnError(env.UI, err)
	}
}

// restart restarts the components that have to read other files now.
func (m *Move) restart(ctx context.Context, env *step.Env, turn node.Lease) error {
	components, err := m.components(ctx, env)
	if err != nil {
		return err
	}
	for _, group := range node.SplitAPIClients(components) {
		env.UI.Printf("Restarting %s at %s", node.NamesOf(group), m.To)
		if _, err := node.ReplaceStaticPods(ctx, env, turn, group); err != nil {
			return err
		}
		if err := m.moveMember(ctx, env); err != nil {
			return err
		}
	}
	return nil
}

// components are those whose static Pod has a former address, or which run with older files.
func (m *Move) components(ctx context.Context, env *step.Env) (list []node.Replacement, err error) {
	for _, name := range node.StaticPods(env) {
		manifest, err := env.Host.ReadFile(env.Config.Paths.StaticPod(name))
		if err != nil {
			return nil, err
		}
		c, right, err := node.CompareRunning(ctx, env, name, []byte(m.ReplaceAddresses(string(manifest))))
		if err != nil {
			return nil, err
		}
		if c.Stale, err = node.StaleContainers(ctx, env, name); err != nil {
			return nil, err
		}
		if !right || len(c.Stale) > 0 {
			list = append(list, c)
		}
	}
	return list, nil
}

// moveMember gives etcd's member the peer URL that it listens at. From then on the others connect to it there. Before that, it
// connects to them, which is enough for a quorum, and it's why the member can move last: as long as it runs at its former address, the
// others have to find it there.
func (m *Move) moveMember(ctx context.Context, env *step.Env) error {
	own, found := thisnode.EtcdMember(env.Host, env.Config.Paths)
	if !found {
		return nil // etcd is external
	}
	var former []string
	for _, from := range m.From {
		if url := replace(own.PeerURL, m.To, from); url != own.PeerURL {
			former = append(former, url)
		}
	}
	if len(former) == 0 {
		return nil // its members have a network of their own
	}
	if members, err := env.Etcd.Members(ctx); err == nil {
		here, _ := node.OwnMember(env, members)
		for i, member := range members { // the address may have another form there, or be one that only this host reaches
			if i == here && member.OnlyLocal() || member.PeerURL != own.PeerURL && m.ReplaceAddresses(member.PeerURL) == own.PeerURL {
				former = append(former, member.PeerURL)
			}
		}
		if here >= 0 && !members[here].At(append(former, own.PeerURL)...) {
			env.UI.Printf("etcd has its member %s at %s, which stays", own.Name, members[here].PeerURL)
			return nil
		}
	}
	data, err := node.OwnEtcdData(env)
	if err = host.IgnoreForbidden(err); err != nil {
		return err
	}
	moved, err := env.Etcd.Move(ctx, data.Member, former, own.PeerURL)
	if moved {
		env.UI.Printf("etcd's member %s is at %s now", own.Name, own.PeerURL)
	}
	return err
}
