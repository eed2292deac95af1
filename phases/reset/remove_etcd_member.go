// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

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

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// leaveLimit bounds a member's removal once another member can be asked: 30 s by default. Etcd refuses a change for 5 s after any
// other change.
func leaveLimit(env *step.Env) time.Duration {
	limit := env.Config.Timeouts.EtcdAPICall
	return min(limit, max(30*time.Second, limit/4))
}

// runRemoveEtcdMember keeps the static Pod of a member that has left, or that no other member can be asked to remove, under a
// name the kubelet ignores. It tells cleanup-node where the data is, in this or a later run.
func runRemoveEtcdMember(ctx context.Context, env *step.Env) error {
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	data, err := env.Host.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return leaveWithoutPod(ctx, env)
	case errors.Is(err, fs.ErrPermission):
		ui.WarnError(env.UI, errors.WithMessage(err, "cannot tell whether this node has an etcd member"))
		return nil
	case err != nil:
		return err
	}
	pod, _ := manifests.DecodePod(data) // a broken one names no member
	if member, found := manifests.ReadEtcd(pod); !found {
		env.UI.Warn("the static Pod of etcd does not say which member it is, so no member is removed", removeThere)
	} else if err := leaveEtcd(ctx, env, member.Name, member.PeerURL); err != nil {
		return err
	}
	if _, err := env.Host.WriteFile(asidePath(env.Config), data, 0o600); err != nil {
		return err
	}
	return env.Host.Remove(path)
}

// asidePath is where a departed member's static Pod is kept. The kubelet ignores files whose names begin with a dot.
func asidePath(n *config.Node) string {
	return filepath.Join(n.Paths.Manifests, "."+manifests.EtcdName+".yaml")
}

// leaveEtcd returns an error if the run is interrupted, or if the others aren't a quorum without this member.
func leaveEtcd(ctx context.Context, env *step.Env, name, peerURL string) error {
	env.UI.Printf("Removing %s from etcd, up to %s", peerURL, leaveLimit(env))
	removed := false
	members, err := askMembers(ctx, env) // which needs less patience than a change
	if err == nil {
		at, unknown := memberHere(env, members, peerURL)
		if unknown != nil {
			ui.WarnError(env.UI, unknown)
		} else if at != peerURL {
			env.UI.Printf("etcd has this host's member at %s", at)
		}
		peerURL = at
		removed, err = leave(ctx, env, peerURL)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return handleLeaveFailure(ctx, env, name, peerURL, err)
	case removed:
		env.UI.Printf("Member %q has left etcd", name)
	default:
		env.UI.Printf("Member %q is the last one of its etcd, or has already left", name)
	}
	return nil
}

// memberHere returns the peer URL of this host's member in etcd, which may differ from its static Pod's, peerURL. It's an error if one
// of several members may be this host's, at another URL.
func memberHere(env *step.Env, members []etcd.Member, peerURL string) (at string, unknown error) {
	switch i, err := node.OwnMember(env, members); {
	case i >= 0 && !members[i].At(peerURL):
		return members[i].PeerURL, nil
	case i < 0 && err != nil && len(members) > 1:
		return peerURL, errors.WithMessagef(err, "etcd has no member at %s, and it is not known whether this host's member has another address", peerURL)
	}
	return peerURL, nil
}

func leave(ctx context.Context, env *step.Env, peerURL string) (removed bool, err error) {
	leaving, cancel := context.WithTimeout(ctx, leaveLimit(env))
	defer cancel()
	return env.Etcd.Leave(leaving, peerURL)
}

// removeThere is the remedy for a member that stays in the list of etcd's members.
const removeThere = "if other members remain, remove it there: `slipway etcd member list`, then `slipway etcd member remove ID`"

// askMembers allows for an API server that hangs (thisnode.EtcdAPITimeout), and then for asking the members side by side. By default
// that's 6 s; where etcd is slow, timeouts.etcdAPICall raises it.
func askMembers(ctx context.Context, env *step.Env) ([]etcd.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, max(2*thisnode.EtcdAPITimeout, env.Config.Timeouts.EtcdAPICall/20))
	defer cancel()
	return env.Etcd.Members(ctx)
}

// handleLeaveFailure decides what to do if this node's member couldn't leave. If etcd has lost its quorum, or would lose it, the data
// stays: the reset ends before deleting anything, unless it's forced. If no member answers, there's none to wait for. That isn't so
// if nobody was asked, for lack of credentials, or if a member was only late.
func handleLeaveFailure(ctx context.Context, env *step.Env, name, peerURL string, cause error) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	peerURL, unknown := memberHere(env, etcd.MembersOf(all), peerURL)
	var why, remedy string
	switch {
	case errors.As(cause, new(etcd.CredentialsError)) && !isAlone(env):
		why = fmt.Sprintf("nobody was asked whether etcd can do without this host's member %q: %v", name, cause)
		remedy = "put the credentials there, or name their directory with --cert-dir, and run the same command again"
	case err == nil && (needed(all, peerURL, cause) || unknown != nil && !etcd.QuorumWithout(all, peerURL)):
		why = fmt.Sprintf("etcd has no quorum without this host's member %q: of the others, %s (%v)", name, etcd.DescribeHealth(all, peerURL), cause)
		remedy = "start the members that are down, or remove lost members (`slipway etcd member remove ID`), and run the same command again"
	case late(all, err, peerURL, cause) && !isAlone(env):
		why = fmt.Sprintf("etcd did not answer in time, so it may still need this host's member %q: %v", name, cause)
		remedy = "run the same command again; for an etcd that is always slow, raise timeouts.etcdAPICall in a ResetConfiguration (--config); if this " +
			"host's etcd hangs, stop it first (`systemctl stop kubelet`, then `crictl stop` with its container), so that its data shows whether it has other members"
	default:
		env.UI.Warn(fmt.Sprintf("cannot remove member %q from etcd: %v", name, cause), removeThere)
		return nil
	}
	if !env.Config.Reset.Force {
		return fault.New(why+"; nothing was deleted", remedy+"; --force deletes this member's data anyway, and then you may have to restore "+
			"the cluster from a snapshot of etcd")
	}
	env.UI.Warnf("%s. CONTINUING BECAUSE OF --FORCE: this member's data is deleted, and the cluster may have to be restored from an etcd snapshot", why)
	return nil
}

// late reports whether a member may only have been too slow to answer or to let this host's member go: all are the members by now,
// unless asking for their health failed, too.
func late(all []etcd.Health, failure error, peerURL string, cause error) bool {
	if failure != nil {
		return etcd.TimedOut(cause) || etcd.TimedOut(failure)
	}
	return etcd.TimedOut(cause) && isVoterOfSeveral(all, peerURL)
}

// isAlone reports whether deleting this host's member surely harms no other: it has no data, or it's stopped and its data has no other
// member.
func isAlone(env *step.Env) bool {
	data, err := node.ReadEtcdData(env)
	if err != nil || data.Log == "" {
		return err == nil
	}
	pod, err := env.Host.ReadFile(env.Config.Paths.StaticPod(manifests.EtcdName))
	if err != nil {
		return false
	}
	f, err := env.Host.Open(filepath.Join(node.EtcdDataDir(pod), thisnode.EtcdMemberDir, "snap", "db"))
	if err != nil {
		return false
	}
	defer f.Close()
	members, err := etcd.StoredMembers(f)
	return err == nil && len(members) == 1
}

// needed reports whether etcd has no quorum, or would have none without the member at peerURL. Learners have no vote, and the
// last member doesn't have to leave.
func needed(all []etcd.Health, peerURL string, cause error) bool {
	return isVoterOfSeveral(all, peerURL) && (etcd.RefusesRemoval(cause) || !etcd.QuorumWithout(all, peerURL))
}

func isVoterOfSeveral(all []etcd.Health, peerURL string) bool {
	voter := func(m etcd.Health) bool { return m.At(peerURL) && !m.Learner }
	others := func(m etcd.Health) bool { return !m.At(peerURL) && !m.Learner }
	return slices.ContainsFunc(all, voter) && slices.ContainsFunc(all, others)
}

// leaveWithoutPod is for a control plane without etcd's static Pod. A join that was killed may have added a member for it; its
// API server's static Pod, which is written before that, has the address. The data of an init that restores, and was interrupted,
// is its own: no etcd has started with it. Data that another workflow's journal names may be all that's left of a cluster.
func leaveWithoutPod(ctx context.Context, env *step.Env) error {
	if _, err := env.Host.Lstat(asidePath(env.Config)); err == nil {
		env.UI.Printf("This node's member has already left etcd")
		return nil
	}
	journal, err := node.ReadEtcdJournal(env)
	if err = host.IgnoreForbidden(err); err != nil {
		ui.WarnError(env.UI, errors.WithMessage(err, "cannot tell whether etcd's data was restored here"))
	}
	if journal.StartedWithoutData() {
		env.UI.Printf("Giving up `slipway %s`, which was interrupted before etcd started", journal.Command)
		_, err := env.Host.WriteFile(asidePath(env.Config), []byte(journal.Manifest), 0o600)
		return err
	}
	pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	if !found {
		return nil
	}
	servers, address := manifests.FlagOf(pod, "etcd-servers"), manifests.FlagOf(pod, "advertise-address")
	switch {
	case servers == "":
		return nil
	case !strings.Contains(servers, "//127.0.0.1:") && !strings.Contains(servers, "//[::1]:"):
		env.UI.Warnf("the etcd at %s is external: it keeps the cluster's data even after the last control plane is reset", servers)
		return nil
	case address == "":
		return nil
	}
	return leaveAddedMember(ctx, env, manifests.PeerURL(address))
}

func leaveAddedMember(ctx context.Context, env *step.Env, peerURL string) error {
	members, err := askMembers(ctx, env)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		env.UI.Warn(errors.WithMessagef(err, "cannot tell whether etcd has a member for this host, at %s", peerURL).Error(),
			"if other members remain, look there with `slipway etcd member list`, and remove it with `slipway etcd member remove ID`")
		return nil
	}
	for _, m := range members {
		if m.At(peerURL) {
			return leaveEtcd(ctx, env, cmp.Or(m.Name, m.IDText()), peerURL)
		}
	}
	return nil
}
