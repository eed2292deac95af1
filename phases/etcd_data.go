// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
)

// answerTime is ample for a member that runs to answer in.
const answerTime = 3 * time.Second

// holdAgainstData compares the member that etcd has at peer with the data that
// this host has, before that etcd is started. One that has run has promised the
// others what its log says: without that log it must not go on, as it would
// vote as if it had never promised anything. So it leaves, and joins as a new
// one. Data that no member at peer can have made is refused.
func holdAgainstData(ctx context.Context, env *Env, peer string) error {
	members, err := env.Etcd.Members(ctx)
	if err != nil {
		return err
	}
	data, err := etcdData(env)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.PeerURL == peer })
	switch {
	case data == "" && i >= 0 && members[i].Name == env.Config.Name: // another name is refused where it joins
		return replaceMember(ctx, env, members, members[i])
	case data != "" && (i < 0 || members[i].Name == "" && !startedHere(env, peer)):
		return errors.Errorf("%s holds the data of an etcd that is no member of this cluster: reset this host, or move the folder away", data)
	}
	return nil
}

// etcdData is the folder that an etcd on this host has its log and its database
// in, empty where there is none: below the data folder of the configuration, or
// below the one that the static Pod here has, to which a patch may have led it.
func etcdData(env *Env) (string, error) {
	n := env.Config
	pod, err := readIfExists(env.Host, filepath.Join(n.Paths.Manifests, manifests.EtcdName+".yaml"))
	if err != nil {
		return "", err
	}
	for _, dir := range []string{n.Cluster.Etcd.Local.DataDir, etcdDataDir(pod)} {
		if !filepath.IsAbs(dir) {
			continue
		}
		member := filepath.Join(dir, "member")
		switch _, err := env.Host.Lstat(member); {
		case err == nil:
			return member, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	return "", nil
}

// startedHere tells whether the member at peer was started on this host. It may
// have data then before the others know its name.
func startedHere(env *Env, peer string) bool {
	local, there := localMember(env.Host, env.Config)
	return there && local.PeerURL == peer
}

// replaceMember takes a member out whose data is lost, so that its place is
// free for a new one. That costs the others nothing: they have a quorum without
// it, or could not have told who the members are.
func replaceMember(ctx context.Context, env *Env, members []etcd.Member, lost etcd.Member) error {
	dir := env.Config.Cluster.Etcd.Local.DataDir
	if !quorumWithout(members, lost) {
		return errors.Errorf("etcd has a member %q at %s, whose data is not on this host (%s), and the others have no quorum without it: "+
			"start those that are down, or take out those that are gone for good (`etcdctl member list`, then `etcdctl member remove ID`) on another control plane; "+
			"where none is left, restore etcd from a snapshot", lost.Name, lost.PeerURL, dir)
	}
	if err := silent(ctx, env, lost); err != nil {
		return err
	}
	env.UI.Warnf("etcd has a member %q at %s, whose data is not on this host (%s): it is taken out, and joins anew as a learner", lost.Name, lost.PeerURL, dir)
	if _, there := localMember(env.Host, env.Config); there { // nothing shall start it meanwhile
		ending, cancel := context.WithTimeout(ctx, undoTime)
		defer cancel()
		if err := removeMember(ending, env); err != nil {
			return err
		}
	}
	_, err := env.Etcd.Leave(ctx, lost.PeerURL)
	return errors.WithMessagef(err, "member %x, whose data is lost, must leave before it can join anew; `etcdctl member remove %x` on another control plane does that, too", lost.ID, lost.ID)
}

// silent makes sure that no etcd answers for a member that is to be lost: the
// address may be another host's, given by mistake, and its etcd well.
func silent(ctx context.Context, env *Env, lost etcd.Member) error {
	probe, err := etcdClientProbe(env)
	if err != nil {
		return err
	}
	for _, url := range lost.ClientURLs {
		probe.URL = url + "/health"
		if serves(ctx, env.Host, probe, answerTime) {
			return errors.Errorf("the member %q of etcd answers at %s, and its data is not on this host (%s): if that is another host's address, give this node its own one (--apiserver-advertise-address); "+
				"if an etcd runs here without its data, reset this host first", lost.Name, url, env.Config.Cluster.Etcd.Local.DataDir)
		}
	}
	return nil
}

// quorumWithout tells whether those of the other voters that have ever run are
// more than half of them. Who of them runs now, etcd looks at itself.
func quorumWithout(members []etcd.Member, lost etcd.Member) bool {
	voters, ran := 0, 0
	for _, m := range members {
		if m.Learner || m.PeerURL == lost.PeerURL {
			continue
		}
		voters++
		if m.Name != "" {
			ran++
		}
	}
	return ran > voters/2
}
