// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// etcdJoin adds this node's etcd as a learner, and only with its own data: docs/design/etcd-members.md.
func etcdJoin() step.Phase {
	return step.Phase{
		Name:    "etcd-join",
		Summary: "Add this node's etcd to the cluster of the other control planes",
		Flags:   []string{"apiserver-advertise-address", "config", "control-plane", "dry-run", "node-name", "patches"},
		Run:     runEtcdJoin,
		Skip: func(env *step.Env) string {
			return cmp.Or(node.UnlessControlPlane(env), node.UnlessLocalEtcd(env))
		},
	}
}

// runEtcdJoin makes this node's etcd a voting member. It starts as a learner, so the others keep their quorum whatever happens
// here. If this run added a member and can't start it, it removes the member again.
func runEtcdJoin(ctx context.Context, env *step.Env) error {
	n := env.Config
	peer := manifests.PeerURL(n.AdvertiseAddress.String())
	env.UI.Printf("Adding %s to etcd, up to %s", peer, n.Timeouts.EtcdAPICall)
	if err := checkData(ctx, env, peer); err != nil {
		return err
	}
	members, added, err := env.Etcd.Join(ctx, n.Name, peer)
	if err != nil {
		return err
	}
	if added || slices.ContainsFunc(members, func(m etcd.Member) bool { return m.At(peer) && m.Learner }) { // its etcd may not have run
		err = encryptionKeys(ctx, env)
	}
	if err == nil {
		err = startMember(ctx, env, peer, members, added)
	}
	if err != nil && added {
		return withdraw(ctx, env, peer, err)
	}
	return err
}

// startMember lets the kubelet start etcd, and promotes the member once it has caught up.
func startMember(ctx context.Context, env *step.Env, peer string, members []etcd.Member, added bool) error {
	local, there := thisnode.EtcdMember(env.Host, env.Config.Paths)
	initial := local.Initial
	if !there || added || !slices.Contains(local.PeerURLs(), peer) {
		initial = nil
		for _, m := range members {
			for _, url := range m.PeerURLs() { // etcd compares them all
				initial = append(initial, manifests.Member{Name: cmp.Or(m.Name, m.IDText()), PeerURL: url})
			}
		}
	}
	writer := *env
	writer.Rerun = env.Rerun && !added // a new member can't run with another's manifest
	if err := writeStaticPod(ctx, &writer, manifests.EtcdName, initial); err != nil {
		return err
	}
	limit := &env.Config.Timeouts.EtcdAPICall
	env.UI.Printf("Waiting for this node's etcd to catch up, up to %s", *limit)
	err := env.Guard(ctx, limit, env.NodeTarget(), "this node's etcd did not become a voting member", func(ctx context.Context) error {
		if added {
			restartStuckLearner(ctx, env, peer)
		}
		return env.Etcd.Promote(ctx, peer)
	})
	if err != nil {
		return err
	}
	env.UI.Printf("etcd has %d members, including this one", max(len(members), 1))
	return nil
}

// undoTimeout bounds the cleanup after a failure, which also runs after an interruption.
const undoTimeout = 30 * time.Second

// withdraw removes the member this run added and cleans up here. It returns cause, the original error, with the result.
func withdraw(ctx context.Context, env *step.Env, peer string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	env.UI.Printf("Removing %s from etcd again", peer)
	if _, err := env.Etcd.Leave(ctx, peer); err != nil {
		return fmt.Errorf("%w; this run's changes could not be undone: %w; run the same command again to continue", cause, err)
	}
	if err := removeMember(ctx, env); err != nil { // otherwise the next run would take it for another member's
		return fmt.Errorf("%w; this node's etcd was removed from the cluster again, but not all of it could be removed from this host: %w; "+
			"reset this host before you join it again", cause, err)
	}
	return errors.WithMessage(cause, "this node's etcd was removed from the cluster again; fix the problem and run the same command again")
}

// removeMember removes the static Pod of a member etcd no longer has. Once its etcd has ended, it also removes the data, which no
// etcd would accept.
func removeMember(ctx context.Context, env *step.Env) error {
	trees, _, err := node.EtcdPlaces(env)
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

// endMember removes etcd's static Pod, if any, and waits until its container has ended.
func endMember(ctx context.Context, env *step.Env) error {
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	if _, err := env.Host.Lstat(path); err != nil {
		return host.IgnoreMissing(err)
	}
	if err := env.Host.Remove(path); err != nil {
		return err
	}
	return awaitEnded(ctx, env)
}

// awaitEnded waits until etcd's container has ended.
func awaitEnded(ctx context.Context, env *step.Env) error {
	err := node.Poll(ctx, func(ctx context.Context) error {
		left, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
		if err == nil && len(left) > 0 {
			err = errors.New("its container is still running")
		}
		return err
	})
	return errors.WithMessage(err, "etcd does not stop")
}

const (
	// wakeTimeout bounds the watch over a starting learner; by then it doesn't need a restart anymore.
	wakeTimeout = 15 * time.Second
	// serveDelay is more than a member needs to serve its clients once the cluster knows its name.
	serveDelay = 250 * time.Millisecond
	// learnerGrace is a learner's time to stop, though it stops at once.
	learnerGrace = 5 * time.Second
)

// restartStuckLearner restarts an etcd that waits for something that has already happened.
//
// A new member publishes its name to the cluster, and serves no client until it has seen that entry in the log. With a single
// voter, the entry is often written before the member gets its first snapshot, which then already contains it: the member waits
// seven seconds (etcd's request timeout) before it publishes its name again. After a restart it has the data, and sees the entry.
// As a learner it has no vote, so nothing depends on it.
//
// This only saves time. Errors are left to the promotion, which may wait longer.
func restartStuckLearner(ctx context.Context, env *step.Env, peer string) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	probe, err := etcdClientProbe(env)
	if err != nil {
		return
	}
	var known time.Time
	_ = retry.Every(node.PollInterval).Do(ctx, func(ctx context.Context) error {
		if serves(ctx, env.Host, probe, serveDelay) {
			return nil
		}
		switch {
		case !known.IsZero() && env.Host.Now().Sub(known) > serveDelay:
			restartLearner(ctx, env)
			return nil
		case known.IsZero():
			members, err := env.Etcd.Members(ctx)
			if err == nil && slices.ContainsFunc(members, func(m etcd.Member) bool { return m.At(peer) && m.Learner && m.Name != "" }) {
				known = env.Host.Now()
			}
		}
		return errors.New("it does not serve yet")
	})
}

func restartLearner(ctx context.Context, env *step.Env) {
	containers, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err != nil {
		return
	}
	for _, c := range containers {
		env.UI.Printf("Restarting the learner, so that it sees what came with its first snapshot")
		_ = env.Host.StopContainer(ctx, env.Config.CRISocket, c.ID, learnerGrace) // see restartStuckLearner
	}
}

// etcdClientProbe asks etcd on its client port, which accepts no connection before etcd serves.
func etcdClientProbe(env *step.Env) (host.Probe, error) {
	row, _ := certs.Find(env.Config, certs.APIServerEtcdClient)
	cert, key, err := env.PKI().Read(row)
	if err != nil {
		return host.Probe{}, err
	}
	ca, err := env.PKI().CA(row.CA)
	return host.Probe{URL: manifests.EtcdLocalURL(env.Config) + "/health", CA: certs.EncodeCerts(ca.Bundle()...), ClientCert: cert, ClientKey: key}, err
}

// serves reports whether any answer comes within limit: a learner may call itself unhealthy.
func serves(ctx context.Context, h host.Host, p host.Probe, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.Probe(ctx, p)
	var answer *host.ProbeError
	return err == nil || errors.As(err, &answer)
}
