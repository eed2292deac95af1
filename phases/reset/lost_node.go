// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// LostNode takes a node out of its cluster whose host can't do it itself, from a control plane.
type LostNode struct {
	name   string
	node   *corev1.Node // nil if the Node is gone already
	member *etcd.Health // nil for a host without a member
}

// NewLostNode finds the Node with this name and its member of etcd. It changes nothing.
func NewLostNode(ctx context.Context, env *step.Env, name string) (*LostNode, error) {
	l := &LostNode{name: name}
	if name == env.Config.Name {
		return nil, fault.New(fmt.Sprintf("%s is this host", name), "leave the name out to reset this host")
	}
	found := cluster.NewNode(name)
	there, err := env.Cluster.Get(ctx, found)
	if err != nil {
		return nil, err
	}
	if there {
		l.node = found
	}
	if err := l.findMember(ctx, env); err != nil {
		return nil, err
	}
	if l.node == nil && l.member == nil {
		return nil, fault.New(fmt.Sprintf("the cluster has no Node %q, and etcd has no member of that name", name),
			"`kubectl get nodes` and `slipway etcd member list` list the names")
	}
	return l, nil
}

// findMember finds the member with the node's name, or at one of its addresses. An external etcd has no members on nodes.
func (l *LostNode) findMember(ctx context.Context, env *step.Env) error {
	if env.Config.Cluster.Etcd.External != nil {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	planes := cluster.ControlPlanes{} // a worker may claim any address
	if l.node != nil {
		planes = cluster.ControlPlanesOf([]corev1.Node{*l.node})
	}
	own, unknown := node.OwnMember(env, etcd.MembersOf(all))
	for i, m := range all {
		if m.Name != l.name && !slices.ContainsFunc(m.PeerURLs(), func(url string) bool { return planes.Has(l.name, hostOf(url)) }) {
			continue
		}
		if unknown != nil {
			return fault.WithRemedy(errors.WithMessagef(unknown, "node %s has the member of etcd at %s, and it is not known whether that runs on this host", l.name, m.PeerURL),
				"run this as root, or on another control plane")
		}
		if i == own {
			return fault.New(fmt.Sprintf("node %s has the member of etcd that runs on this host (%s)", l.name, m.PeerURL),
				"find out which of them has the wrong name or address: `slipway etcd member list`, `kubectl get nodes -o wide`")
		}
		l.member = &all[i]
		return checkRemovable(all, m)
	}
	return nil
}

// checkRemovable fails if a member works, or if etcd would have no quorum without it.
func checkRemovable(all []etcd.Health, m etcd.Health) error {
	if m.Answers {
		return fault.New(fmt.Sprintf("the etcd of %s answers at %s, so its host is not lost", m.Label(), strings.Join(m.ClientURLs, ", ")), resetThere)
	}
	return node.CheckRemovalQuorum(all, m.Member)
}

// resetThere is the remedy for a host that answers.
const resetThere = "run `slipway reset` on that host; if it can't, turn it off first"

// resetOrElsewhere is the remedy for an address that answers: only its operator knows whose it is now.
const resetOrElsewhere = resetThere + ". If another host has the address now, remove the node with `slipway etcd member remove` (a control plane only) and `kubectl delete node`"

// Summary says what goes, before it's confirmed.
func (l *LostNode) Summary() string {
	var parts []string
	if l.member != nil {
		parts = append(parts, "its member of etcd ("+l.member.IDText()+")")
	}
	parts = append(parts, "the bootstrap tokens that it joined with")
	if l.node != nil {
		parts = append(parts, "its Node, and so its Pods")
	}
	return fmt.Sprintf("Node %s is given up: the cluster loses %s.\nThe host must never come back as it is: before it joins again, run `slipway reset` there, or erase its disks.",
		l.name, strings.Join(parts, ", "))
}

// Phases is the workflow. The Node goes last, so the same command finds everything again after an interruption.
func (l *LostNode) Phases() []step.Phase {
	return []step.Phase{
		{Name: "check-silence", Summary: "Make sure that the host does not answer", Run: l.checkSilence},
		{Name: "remove-etcd-member", Summary: "Remove the host's member from etcd", Run: l.removeMember},
		{Name: "delete-tokens", Summary: "Delete the bootstrap tokens that the host joined with", Run: l.deleteTokens},
		{Name: "delete-node", Summary: "Delete the Node", Run: l.deleteNode},
	}
}

// removeMember looks again: the members may have changed while the host was watched.
func (l *LostNode) removeMember(ctx context.Context, env *step.Env) error {
	if l.member == nil {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(m etcd.Health) bool { return m.ID == l.member.ID })
	if i < 0 {
		return nil
	}
	if err := checkRemovable(all, all[i]); err != nil {
		return err
	}
	if _, err := env.Etcd.Leave(ctx, all[i].PeerURL); err != nil {
		return etcd.WithHealth(ctx, env.Etcd, err)
	}
	env.UI.Printf("Member %s (%s) has left etcd", all[i].Label(), all[i].IDText())
	return nil
}

func (l *LostNode) deleteNode(ctx context.Context, env *step.Env) error {
	if l.node == nil {
		return nil
	}
	env.UI.Printf("Deleting Node %s", l.name)
	return env.Cluster.EnsureAbsent(ctx, cluster.NewNode(l.name))
}
