// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkData compares the member at peer with the data on this host before etcd is started. A member that has run has promised the
// others the contents of its log. Without the log it must not continue, because it would vote as if it had promised nothing: it's
// removed, and joins as a new member. Data that no member at peer can have written is refused, unless this join itself has left it.
func checkData(ctx context.Context, env *step.Env, peer string) error {
	members, err := membersToJoin(ctx, env)
	if err != nil {
		return etcd.WithHealth(ctx, env.Etcd, err)
	}
	here, err := node.ReadEtcdData(env)
	if err != nil {
		return err
	}
	if here.Log == "" {
		if err := checkReachable(env, members, peer); err != nil {
			return err
		}
	}
	m, fit := classifyData(here, members, env.Config.Name, peer)
	if fit == dataForeign && ofWithdrawn(env, here, members, peer) {
		return removeWithdrawn(ctx, env, here)
	}
	switch fit {
	case dataForeign:
		own := etcd.Identity{Name: env.Config.Name, Data: here.Data}.Find(members)
		if own >= 0 && !members[own].At(peer) {
			return fault.New(fmt.Sprintf("etcd has this host's member at %s, and this host joins at %s", members[own].PeerURL, peer),
				"if that is its address now, "+updateMember(env, members[own])+peer+"`, and run the same command again")
		}
		return here.Foreign()
	case dataLost:
		return replaceMember(ctx, env, m, fmt.Sprintf("its data is not on this host (%s)", env.Config.Cluster.Etcd.Local.DataDir))
	case dataOfRemovedMember:
		return replaceMember(ctx, env, m, fmt.Sprintf("the data on this host (%s) belongs to member %x, which was removed", here.Log, here.Member))
	case dataEmpty:
		if m.Learner && awaitFirstEntry(ctx, env) {
			return nil
		}
		return replaceMember(ctx, env, m, fmt.Sprintf("it was started on an empty disk, so this host has lost its data (%s)", here.Log))
	}
	return nil
}

// checkReachable fails if another member is only at loopback addresses, as after a restore by hand without the cluster's flags, or in
// a cluster of kubeadm before 1.13. It works while it's alone, but an etcd on this host would connect to itself instead.
func checkReachable(env *step.Env, members []etcd.Member, peer string) error {
	for _, m := range members {
		if m.OnlyLocal() && !m.At(peer) {
			return fault.New(fmt.Sprintf("etcd's member %s is at %s, where no other host can reach it", m.Label(), strings.Join(m.PeerURLs(), ", ")),
				"on its host, "+updateMember(env, m)+"URL`, with the URL in --initial-advertise-peer-urls of etcd's static Pod; then run the same command again")
		}
	}
	return nil
}

// updateMember is a remedy up to the member's new peer URL.
func updateMember(env *step.Env, m etcd.Member) string {
	return fmt.Sprintf("run `cd %s && etcdctl --endpoints %s --cacert ca.crt --cert healthcheck-client.crt --key healthcheck-client.key member update %s --peer-urls=",
		filepath.Join(env.Config.Paths.PKI, "etcd"), manifests.EtcdLocalURL(env.Config), m.IDText())
}

// dataState says how this host's data fits the member at its address.
type dataState int

const (
	dataMatches         dataState = iota // also if there's neither, the member hasn't run yet, or Join refuses its name
	dataForeign                          // another member's, or another cluster's
	dataLost                             // the member has run, and there's no data
	dataOfRemovedMember                  // a removed member's
	dataEmpty                            // the member has run, and its log is empty
)

// classifyData finds this node's member, and compares the data with it. A plan knows no IDs, so there all data fits.
func classifyData(here node.EtcdData, members []etcd.Member, name, peer string) (etcd.Member, dataState) {
	has := func(id uint64) bool {
		return slices.ContainsFunc(members, func(m etcd.Member) bool { return m.ID == id })
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.At(peer) })
	if i < 0 {
		if here.Log != "" {
			return etcd.Member{}, dataForeign
		}
		return etcd.Member{}, dataMatches
	}
	switch m := members[i]; {
	case m.Name != "" && m.Name != name, here.Log == "" && m.Name == "":
		return m, dataMatches
	case here.Log == "":
		return m, dataLost
	case m.ID == 0:
		return m, dataMatches
	case here.Cluster != m.Cluster || here.Member != m.ID && has(here.Member):
		return m, dataForeign
	case here.Member != m.ID:
		return m, dataOfRemovedMember
	case here.Empty && m.Name != "":
		return m, dataEmpty
	default:
		return m, dataMatches
	}
}

// ofWithdrawn reports whether an earlier run of this join was cut off while it withdrew its member: the members no longer have it,
// but its data is still here. Data that's older than the join stays, and so does a complete control plane's data.
func ofWithdrawn(env *step.Env, here node.EtcdData, members []etcd.Member, peer string) bool {
	begun, err := env.Host.Lstat(thisnode.JoinUnfinished(env.Config))
	if err != nil {
		return false
	}
	log, err := env.Host.Stat(here.Log)
	if err != nil || log.ModTime().Before(begun.ModTime()) {
		return false
	}
	return len(members) > 0 && !slices.ContainsFunc(members, func(m etcd.Member) bool {
		return m.Cluster != here.Cluster || m.ID == here.Member || m.At(peer)
	})
}

// removeWithdrawn removes data that no etcd would accept, once no etcd uses it: this node joins with a new member.
func removeWithdrawn(ctx context.Context, env *step.Env, here node.EtcdData) error {
	env.UI.Warnf("the data on this host (%s) belongs to member %x, which an earlier run of this join removed again. Removing it",
		here.Log, here.Member)
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	_, err := env.Host.Lstat(env.Config.Paths.StaticPod(manifests.EtcdName))
	if errors.Is(err, fs.ErrNotExist) { // so its etcd is ending already
		err = awaitEnded(ctx, env)
	}
	if err != nil {
		return err
	}
	return removeMember(ctx, env)
}

// podInterval is the longest wait between two queries for etcd's Pods.
const podInterval = time.Second

// membersToJoin lists the members. The cluster may be seconds old, and its API may not have a Pod of etcd yet, so it waits for
// the kubelet of the first control plane. (Commands for clusters that should have these Pods don't wait.)
func membersToJoin(ctx context.Context, env *step.Env) (members []etcd.Member, err error) {
	limit := env.Config.Timeouts.EtcdAPICall
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	told := false
	err = retry.Policy{First: node.PollInterval, Slowest: podInterval, Retryable: isNoPod}.Do(ctx, func(ctx context.Context) error {
		members, err = env.Etcd.Members(ctx)
		if isNoPod(err) && !told {
			env.UI.Printf("Waiting until the API has a Pod of etcd, up to %s", limit)
			told = true
		}
		return err
	})
	return members, err
}

func isNoPod(err error) bool {
	var none *thisnode.NoEtcdPodError
	return errors.As(err, &none)
}

// firstEntryTimeout is how long a learner running on this host gets to receive its first entry. On a busy host it takes seconds;
// without its data it never does.
const firstEntryTimeout = 30 * time.Second

// awaitFirstEntry waits for the first entry in the log of a learner running on this host. The others may know its name earlier:
// the leader stores that without the learner's vote.
func awaitFirstEntry(ctx context.Context, env *step.Env) bool {
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err != nil || len(running) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, firstEntryTimeout)
	defer cancel()
	return node.Poll(ctx, func(context.Context) error {
		here, err := node.ReadEtcdData(env)
		if err == nil && here.Empty {
			err = errors.New("the log is empty")
		}
		return err
	}) == nil
}

// replaceMember removes a member whose data is lost, so a new member can take its place. The others lose nothing as long as
// they are a quorum without it.
func replaceMember(ctx context.Context, env *step.Env, lost etcd.Member, why string) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	name := cmp.Or(lost.Name, lost.IDText())
	for _, m := range all {
		if m.At(lost.PeerURL) && m.Answers {
			return fault.New(fmt.Sprintf("etcd member %q answers at %s, but %s", name, strings.Join(m.ClientURLs, ", "), why),
				"if this is another host's address, give this node its own (--apiserver-advertise-address); if etcd runs on this host, run `slipway reset` here first")
		}
	}
	if !lost.Learner && !etcd.QuorumWithout(all, lost.PeerURL) {
		return fault.New(fmt.Sprintf("etcd has a member %q at %s, but %s; the others have no quorum to remove it before it joins again: %s",
			name, lost.PeerURL, why, etcd.DescribeHealth(all, lost.PeerURL)),
			"start the members that are down; if they are lost, run `slipway etcd recover` on a control plane with etcd's data, or restore a snapshot")
	}
	env.UI.Warnf("etcd has a member %q at %s, but %s. Removing it; this node joins again as a learner", name, lost.PeerURL, why)
	ending, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	if err := removeMember(ending, env); err != nil { // before anything starts it again
		return err
	}
	_, err = env.Etcd.Leave(ctx, lost.PeerURL)
	return errors.WithMessagef(err, "etcd member %q must be removed before it can join again; `slipway etcd member remove %x` on another control plane removes it, too", name, lost.ID)
}
