// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

func (r *Rollback) putBackControlPlane(ctx context.Context, env *step.Env) error {
	mine, err := node.AcquireLeaseIfReachable(ctx, env, node.ForRollback)
	if err != nil {
		return err
	}
	err = r.rollBackWithLease(ctx, env, mine)
	return mine.Release(ctx, env, err)
}

func (r *Rollback) rollBackWithLease(ctx context.Context, env *step.Env, mine node.Lease) error {
	if err := r.restoreData(ctx, env, mine); err != nil {
		return err
	}
	components, err := r.components(ctx, env)
	if err != nil {
		return err
	}
	err = node.InGroups(components, func(group []node.Replacement) error {
		err := r.swap(ctx, env, mine, group)
		r.newer = nil // the first swap has restarted the kubelet
		return err
	})
	if err != nil {
		return err
	}
	if r.restore != nil && r.Progress.Finished.IsZero() {
		if err := node.CheckServedCluster(ctx, env, r.Progress.Cluster); err != nil {
			return err
		}
	}
	if len(components) > 0 { // swapping them has restarted the kubelet
		return nil
	}
	if err := r.startKubelet(ctx, env); err != nil {
		mine.KeepOnFailure() // it may have stopped the kubelet
		return err
	}
	return nil
}

// swap gives components their previous manifests. If they don't come up, it puts the newer manifests and kubelet's files back, but only
// if the components worked: otherwise the user wants to leave them. Once etcd's data is restored, it can't go back.
func (r *Rollback) swap(ctx context.Context, env *step.Env, mine node.Lease, components []node.Replacement) error {
	env.UI.Printf("Putting back %s: %s", node.NamesOf(components), node.ImagesOf(components))
	worked := r.restore == nil && !slices.ContainsFunc(components, func(c node.Replacement) bool { return !node.IsHealthy(ctx, env, c.Name) })
	swapped, err := node.ReplaceStaticPods(ctx, env, mine, components)
	if err == nil || ctx.Err() != nil || !worked {
		return err
	}
	if back := env.Keeper().Replace(r.newer); back != nil {
		ui.WarnError(env.UI, back)
	}
	return node.RollBack(ctx, env, mine, swapped, err)
}

// quorumCheck checks that etcd can do without this member, if it goes back. After a restore, there are no other members.
func (r *Rollback) quorumCheck(env *step.Env) preflight.Check {
	before := r.before[manifests.EtcdName]
	stops := func(ctx context.Context) bool {
		if r.restore != nil || before == nil || r.keepsEtcd(env, manifests.EtcdName) || !slices.Contains(node.StaticPods(env), manifests.EtcdName) {
			return false
		}
		_, right, err := node.CompareRunning(ctx, env, manifests.EtcdName, before)
		return err != nil || !right
	}
	return node.NewQuorumCheckIf(env, stops, node.AwaitPeers)
}

// components returns the components that don't run with their previous manifests, etcd first.
func (r *Rollback) components(ctx context.Context, env *step.Env) ([]node.Replacement, error) {
	var list []node.Replacement
	for _, name := range manifests.Components(env.Config) {
		if r.before[name] == nil {
			continue
		}
		if r.keepsEtcd(env, name) {
			env.UI.Printf("%s", r.whyEtcdStays(env))
			continue
		}
		c, right, err := node.CompareRunning(ctx, env, name, r.before[name])
		if err != nil {
			return nil, err
		}
		if !right {
			list = append(list, c)
		}
	}
	return list, nil
}

// keepsEtcd reports whether a component is an etcd that must stay at its newer minor version: once all members have run it, the
// previous version doesn't start with their data. The previous API server works with a newer etcd.
func (r *Rollback) keepsEtcd(env *step.Env, component string) bool {
	if component != manifests.EtcdName || r.restore != nil || r.before[component] == nil {
		return false
	}
	now, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(component))
	if err != nil || now == nil {
		return false
	}
	minor := node.EtcdMinor(now)
	return manifests.ImageOf(now) != manifests.ImageOf(r.before[component]) && (minor == "" || minor != node.EtcdMinor(r.before[component]))
}

func (r *Rollback) whyEtcdStays(env *step.Env) string {
	now, _ := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	return "etcd stays at " + manifests.TagOf(manifests.ImageOf(now)) + ": " + manifests.TagOf(manifests.ImageOf(r.before[manifests.EtcdName])) +
		" may not start with its data any more, and Kubernetes " + r.from() + " works with it (--restore-etcd restores the snapshot from before the upgrade)"
}
