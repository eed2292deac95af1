// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
)

func etcdJoin() Phase {
	return Phase{
		Name:    "etcd-join",
		Summary: "Add this node's etcd to that of the other control planes",
		Flags:   []string{"apiserver-advertise-address", "config", "control-plane", "dry-run", "node-name", "patches"},
		Run:     runEtcdJoin,
		Skip: func(n *config.Node) string {
			if n.Cluster.Etcd.External != nil && n.ControlPlane {
				return "etcd is external"
			}
			return unlessControlPlane(n)
		},
	}
}

// runEtcdJoin makes this node's etcd a voter. It begins as a learner, so that
// the others keep their quorum whatever happens here. What this run has added
// and cannot finish it removes again.
func runEtcdJoin(ctx context.Context, env *Env) error {
	n := env.Config
	peer := manifests.PeerURL(n.AdvertiseAddress.String())
	env.UI.Printf("Adding %s to etcd, up to %s", peer, n.Timeouts.EtcdAPICall)
	if err := holdAgainstData(ctx, env, peer); err != nil {
		return err
	}
	members, added, err := env.Etcd.Join(ctx, n.Name, peer)
	if err != nil {
		return err
	}
	err = startMember(ctx, env, peer, members, added)
	if err != nil && added {
		return withdraw(ctx, env, peer, err)
	}
	return err
}

// startMember lets the kubelet start etcd, and gives it its vote.
func startMember(ctx context.Context, env *Env, peer string, members []etcd.Member, added bool) error {
	local, there := localMember(env.Host, env.Config)
	initial := local.Initial
	if !there || added || local.PeerURL != peer {
		initial = nil
		for _, m := range members {
			initial = append(initial, manifests.Member{Name: cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)), PeerURL: m.PeerURL})
		}
	}
	writer := *env
	writer.Again = env.Again && !added // a member that is new cannot run with the manifest of another
	if err := writeStaticPod(&writer, manifests.EtcdName, initial); err != nil {
		return err
	}
	limit := env.Config.Timeouts.EtcdAPICall
	env.UI.Printf("Waiting until etcd has caught up here, up to %s", limit)
	err := watched(ctx, env, limit, nodeTarget(env.Config), "etcd did not become a voting member of the cluster", func(ctx context.Context) error {
		if added {
			wakeLearner(ctx, env, peer)
		}
		return env.Etcd.Promote(ctx, peer)
	})
	if err != nil {
		return err
	}
	env.UI.Printf("Etcd has %d members, this one among them", max(len(members), 1))
	return nil
}

// undoTime bounds undoing, which goes on after the run was interrupted.
const undoTime = 20 * time.Second

// withdraw takes the member that this run has added out of the cluster again,
// because of cause, which it returns, and cleans up here.
func withdraw(ctx context.Context, env *Env, peer string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	env.UI.Printf("Taking %s out of etcd again", peer)
	if _, err := env.Etcd.Leave(ctx, peer); err != nil {
		return fmt.Errorf("%w; what this run had begun could not be undone: %w; the same command goes on from there", cause, err)
	}
	if err := removeMember(ctx, env); err != nil { // the next run takes what is left for another member's
		return fmt.Errorf("%w; this node's etcd was taken out of the cluster again, but not all of it could be removed here: %w; "+
			"reset this host before it joins again", cause, err)
	}
	return errors.WithMessage(cause, "this node's etcd was taken out of the cluster again; once this is fixed, run the same command again")
}

// removeMember removes the static Pod of a member that etcd no longer has and,
// once its etcd has ended, its data, which no etcd takes.
func removeMember(ctx context.Context, env *Env) error {
	trees, _, err := etcdPlaces(env)
	if err != nil {
		return err
	}
	if err := endMember(ctx, env); err != nil {
		return err
	}
	for _, tree := range trees {
		if _, err := env.Host.RemoveTree(tree); err != nil {
			return err
		}
	}
	return nil
}

// endMember removes the static Pod of etcd, if there is one, and waits until
// its container has ended.
func endMember(ctx context.Context, env *Env) error {
	path := staticPodPath(env, manifests.EtcdName)
	if _, err := env.Host.Lstat(path); err != nil {
		return ignoreMissing(err)
	}
	if err := env.Host.Remove(path); err != nil {
		return err
	}
	err := poll(ctx, func(ctx context.Context) error {
		left, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
		if err == nil && len(left) > 0 {
			err = errors.New("its container still runs")
		}
		return err
	})
	return errors.WithMessage(err, "etcd does not end")
}
