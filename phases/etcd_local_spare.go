// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
)

// spareRewritten returns a *quorumError if init is about to write another static Pod of an etcd that runs, for which the kubelet
// restarts it, and the other members need it. The phase's own command repairs broken control planes, so where nobody can be
// asked, that is only a warning.
func spareRewritten(ctx context.Context, env *Env, component string, pending []ownership.File) error {
	member, there := etcdmember.Local(env.Host, env.Config)
	if component != manifests.EtcdName || env.Config.Join != nil || !there {
		return nil
	}
	differing, err := ownership.Differing(env.Host, pending)
	if err != nil || len(differing) == 0 {
		return err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err == nil && len(running) == 0 {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil || !slices.ContainsFunc(all, func(m etcd.Health) bool { return m.PeerURL == member.PeerURL }) {
		env.UI.Warn("the kubelet restarts etcd with its new static Pod, and it is not known whether other members need this one",
			"`slipway diagnose` says whether etcd works; other control planes show its members")
		return ctx.Err()
	}
	return spareThis(ctx, env)
}

// spareThis is spareEtcd for the etcd that has its static Pod here.
func spareThis(ctx context.Context, env *Env) error {
	before, err := staticPodThere(env, manifests.EtcdName)
	if err != nil {
		return err
	}
	return spareEtcd(ctx, env, []componentUpgrade{{name: manifests.EtcdName, before: before}})
}
