// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func (r *Restore) replaceData(ctx context.Context, env *step.Env) error {
	if r.journal.Serves {
		return nil
	}
	mine, err := node.AcquireLeaseIfReachable(ctx, env, node.ForRestore)
	if err != nil {
		return err
	}
	if r.begun {
		mine.KeepOnFailure()
	}
	err = r.replaceWithLease(ctx, env, mine)
	if err := mine.Release(ctx, env, err); err != nil {
		return err
	}
	r.journal.Serves = true
	return r.journal.Write(env)
}

// replaceWithLease makes the new data while everything still runs, then stops etcd and its clients. All of them start again with
// the new data: a client that kept its cache would act on a state that's gone.
func (r *Restore) replaceWithLease(ctx context.Context, env *step.Env, mine node.Lease) error {
	if !r.journal.Replaced {
		if err := r.build(ctx, env); err != nil {
			return err
		}
		mine.KeepOnFailure()
		if err := r.replacement.Stop(ctx, env, node.StopGrace); err != nil {
			return err
		}
		if err := r.replacement.Replace(env); err != nil {
			return err
		}
		r.journal.Replaced, r.journal.Since = true, env.Host.Now().UTC()
		if err := r.journal.Write(env); err != nil {
			return err
		}
	}
	if err := r.replacement.CheckData(env, r.journal.Cluster); err != nil {
		return err
	}
	if err := r.start(ctx, env, mine); err != nil {
		return cmp.Or(r.acceptsWrites(ctx, env), err)
	}
	return node.CheckServedCluster(ctx, env, r.journal.Cluster)
}

func (r *Restore) build(ctx context.Context, env *step.Env) error {
	ready := func() error {
		err := node.Check(ctx, env, r.spaceQuestion())
		if err == nil {
			env.UI.Printf("Restoring %s to %s", r.File, r.replacement.NewData)
		}
		return err
	}
	fill := func(dir string) error {
		made, err := r.fill(ctx, env, dir, r.Own.Name, r.Own.PeerURL, r.journal.Revision)
		r.journal.Cluster = node.EtcdClusterText(made)
		return err
	}
	if err := r.replacement.Build(ctx, env, ready, fill); err != nil {
		return err
	}
	r.replacement.OldData = cmp.Or(r.replacement.OldData, r.replacement.OldDataPath("restore", env.Host.Now()))
	r.journal.OldData = r.replacement.OldData
	return r.journal.Write(env)
}

// acceptsWrites fails if etcd is full with the restored data: the API server may not even start, and no kubelet or controller can
// report. If etcd doesn't answer, that's the caller's to find out. A plan restores nothing, so it has no cluster.
func (r *Restore) acceptsWrites(ctx context.Context, env *step.Env) error {
	if r.journal.Cluster == "" {
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil || !etcd.HasAlarm(all, "NOSPACE") {
		return nil //nolint:nilerr // see above
	}
	return fault.New("etcd is full with the restored data (alarm NOSPACE), so it accepts no writes", "run `slipway etcd defrag`, and then this command again")
}

// start starts etcd and the API server together. The kubelet, which was stopped, starts the others with them, and Lease.Release
// waits for all.
func (r *Restore) start(ctx context.Context, env *step.Env, mine node.Lease) error {
	server, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	if err != nil {
		return err
	}
	components := []node.Replacement{{Name: manifests.EtcdName, Wanted: []byte(r.journal.Manifest)}}
	if server != nil {
		components = append(components, node.Replacement{Name: manifests.APIServerName, Wanted: server, Before: server})
	}
	env.UI.Printf("Starting etcd, the control plane and the kubelet")
	_, err = node.ReplaceStaticPods(ctx, env, mine, components)
	return err
}
