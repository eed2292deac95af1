// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// hungGrace is how long a component may take to stop. Without a quorum, etcd's and the API server's requests never end, and nothing
// that they could still write would count.
const hungGrace = time.Second

// stop stops the control plane, after it has noted how to go on. Until the new data is in place, etcd's stays as it is, and its
// static Pod is gone, so that no boot starts it.
func (r *Recovery) stop(ctx context.Context, env *step.Env) error {
	if r.journal.Replaced {
		return nil
	}
	r.replacement.OldData = cmp.Or(r.replacement.OldData, r.replacement.OldDataPath("recover", env.Host.Now()))
	r.journal.OldData = r.replacement.OldData
	if err := r.journal.Write(env); err != nil {
		return err
	}
	if err := r.replacement.Stop(ctx, env, hungGrace); err != nil {
		return err
	}
	return r.stopReplay(ctx, env) // of an earlier run
}

// moved reports whether an earlier run has begun to replace the data, so the new data is complete.
func (r *Recovery) moved(env *step.Env) (bool, error) {
	if r.journal.Replaced {
		return true, nil
	}
	return node.EtcdDataReplacement{OldData: r.journal.OldData}.Moved(env)
}

// replaceData exchanges the data. The new data has a new cluster's IDs, and newer revisions than clients can know.
func (r *Recovery) replaceData(ctx context.Context, env *step.Env) error {
	moved, err := r.moved(env)
	if err != nil || r.journal.Replaced {
		return err
	}
	if !moved {
		if err := r.build(ctx, env); err != nil {
			return err
		}
		if err := r.journal.Write(env); err != nil { // with the new cluster
			return err
		}
	}
	if err := r.replacement.Replace(env); err != nil {
		return err
	}
	if _, err := env.Host.RemoveTree(r.replayDir()); err != nil {
		return err
	}
	r.journal.Replaced = true
	return r.journal.Write(env)
}

func (r *Recovery) build(ctx context.Context, env *step.Env) error {
	from := r.replacement.Data
	if replayed, err := host.Exists(env.Host, r.replayDir()); err != nil {
		return err
	} else if replayed {
		from = filepath.Join(r.replayDir(), thisnode.EtcdMemberDir)
	}
	ready := func() error {
		err := node.Check(ctx, env, r.spaceQuestion(1))
		if err == nil {
			env.UI.Printf("Making the data of a new cluster in %s", r.replacement.NewData)
		}
		return err
	}
	return r.replacement.Build(ctx, env, ready, func(dir string) error {
		return r.withSurvivor(env, from, func(s *etcd.Survivor) error {
			made, err := s.WriteRenewed(ctx, dir, r.own.Name, r.own.PeerURL)
			r.journal.Cluster = node.EtcdClusterText(made)
			return err
		})
	})
}

// start starts all components with the kubelet. None of them ran, and no other control plane can, so there's no turn to take.
func (r *Recovery) start(ctx context.Context, env *step.Env) error {
	if r.journal.Serves {
		return nil
	}
	if err := r.replacement.CheckData(env, r.journal.Cluster); err != nil {
		return err
	}
	components := []node.Replacement{{Name: manifests.EtcdName, Wanted: []byte(r.journal.Manifest)}}
	for _, name := range node.StaticPods(env) {
		if name == manifests.EtcdName {
			continue // as a run before has written it
		}
		manifest, err := env.Host.ReadFile(env.Config.Paths.StaticPod(name))
		if err != nil {
			return err
		}
		components = append(components, node.Replacement{Name: name, Before: manifest, Wanted: manifest})
	}
	env.UI.Printf("Starting %s with the kubelet", node.NamesOf(components))
	if _, err := node.ReplaceStaticPods(ctx, env, node.Lease{}, components); err != nil {
		return err
	}
	limit := &env.Config.Timeouts.UpgradeManifests
	err := env.Guard(ctx, limit, env.NodeTarget(), "the control plane does not work with etcd's new data", func(ctx context.Context) error {
		if err := env.Etcd.CaughtUp(ctx, etcd.At(r.own.PeerURL)); err != nil {
			return err
		}
		return errors.WithMessage(env.Cluster.Ready(ctx), "the API")
	})
	if err != nil {
		return err
	}
	if err := node.CheckServedCluster(ctx, env, r.journal.Cluster); err != nil {
		return err
	}
	r.journal.Serves = true
	return r.journal.Write(env)
}
