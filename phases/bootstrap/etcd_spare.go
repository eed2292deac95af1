// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// spareRewritten is spareLocalEtcd for a phase that's about to rewrite etcd's static Pod.
func spareRewritten(ctx context.Context, env *step.Env, component string, pending []ownership.File) error {
	if component != manifests.EtcdName {
		return nil
	}
	differing, err := ownership.Differing(env.Host, pending)
	if err != nil || len(differing) == 0 {
		return err
	}
	return spareLocalEtcd(ctx, env)
}

// spareLocalEtcd returns a *QuorumError if the etcd running from this host's static Pod is about to restart and the other members
// need it. An init repairs broken control planes, and its etcd may never have come up, so if nobody answers, it only warns. A
// join has just had an answer from etcd.
func spareLocalEtcd(ctx context.Context, env *step.Env) error {
	member, there := thisnode.EtcdMember(env.Host, env.Config)
	if !there {
		return nil
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err == nil && len(running) == 0 {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	known := slices.ContainsFunc(all, func(m etcd.Health) bool { return m.PeerURL == member.PeerURL })
	if err == nil && !known || err != nil && env.Config.Join == nil {
		env.UI.Warn("the kubelet restarts etcd with its new static Pod, and it is not known whether other members need this one",
			"`slipway diagnose` says whether etcd works; other control planes show its members")
		return ctx.Err()
	}
	before, err := staticPodThere(env, manifests.EtcdName)
	if err != nil {
		return err
	}
	return node.SpareEtcd(ctx, env, []node.ComponentUpgrade{{Name: manifests.EtcdName, Before: before}})
}
