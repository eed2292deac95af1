// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Defragmentation gives the free space in the databases of etcd's members back to their file systems.
type Defragmentation struct {
	// All takes in members for which it hardly pays.
	All bool
}

// Phases is the workflow.
func (d *Defragmentation) Phases() []step.Phase {
	return []step.Phase{{Name: "defragment", Summary: "Rewrite the members' databases, one at a time, without their free space", Run: d.run}}
}

const (
	// minFreeBytes (bytes) and minFreePercent (percent) are the least free space in a database for which a member stops serving.
	minFreeBytes   = 100 << 20
	minFreePercent = 40
)

func isWorthDefragmenting(s etcd.Status) bool {
	free := s.Size - s.InUse
	return free >= minFreeBytes && free*100 > s.Size*minFreePercent || s.NearsQuota() && wouldShrink(s)
}

// wouldShrink reports whether a rewritten database would be smaller by more than a hundredth.
func wouldShrink(s etcd.Status) bool { return s.Size-s.InUse > s.Size/100 }

func (d *Defragmentation) run(ctx context.Context, env *step.Env) error {
	if err := refuseExternal(env); err != nil {
		return err
	}
	all, err := awaitFullHealth(ctx, env)
	if err != nil {
		return err
	}
	if etcd.HasAlarm(all, "NOSPACE") {
		return clearNoSpaceAlarm(ctx, env, all)
	}
	due := votersOf(env, slices.DeleteFunc(all, func(m etcd.Health) bool { return !d.All && !isWorthDefragmenting(m.Status) }))
	if len(due) == 0 {
		env.UI.Nextf("No voter of etcd has so much free space that defragmenting pays (%d %%, and %d MiB)", minFreePercent, minFreeBytes>>20)
		return nil
	}
	mine, err := node.AcquireLeaseIfReachable(ctx, env, node.ForDefragmentation)
	if err != nil {
		return err
	}
	err = defragment(ctx, env, due)
	return mine.Release(ctx, env, err)
}

// votersOf leaves out learners, with a warning: they answer hardly any request, so nobody can have them rewrite their databases.
func votersOf(env *step.Env, all []etcd.Health) []etcd.Health {
	return slices.DeleteFunc(slices.Clone(all), func(m etcd.Health) bool {
		if m.Learner {
			env.UI.Warn(fmt.Sprintf("member %s is left out, because it is a learner, and etcd rewrites only voters' databases", m.Label()),
				"run this again once it has its vote: finish the join on its host (`slipway join` again)")
		}
		return m.Learner
	})
}

// refuseFullLearner fails if a learner is as full as the voters. Nobody can rewrite its database, so after the next write, it would
// raise the alarm again.
func refuseFullLearner(env *step.Env, all []etcd.Health) error {
	for _, m := range all {
		if m.Learner && isFull(env, m.Status) {
			return fault.New(fmt.Sprintf("member %s is a learner, whose database can't be rewritten, and has %s of its quota of %s: it would raise the alarm NOSPACE again",
				m.Label(), size(m.Status.Size), size(quotaOf(env, m.Status))),
				"unless its join is about to give it its vote, remove it (`slipway etcd member remove "+m.IDText()+"`), and run this again; "+
					"then run `slipway reset` on its host, and join it again")
		}
	}
	return nil
}

// clearNoSpaceAlarm makes room in databases at their quota. Nobody can take the Lease meanwhile, this run included, because etcd
// refuses writes; if another control plane restarts its member, the next look at the members' health ends the run.
func clearNoSpaceAlarm(ctx context.Context, env *step.Env, all []etcd.Health) error {
	if err := refuseFullLearner(env, all); err != nil {
		return err
	}
	voters := votersOf(env, all)
	revision := etcd.CommonRevision(voters)
	env.UI.Printf("Discarding the history of all keys up to revision %d", revision)
	if err := env.Etcd.Compact(ctx, revision); err != nil {
		return err
	}
	if err := defragment(ctx, env, voters); err != nil {
		return err
	}
	all, err := awaitFullHealth(ctx, env)
	if err != nil {
		return err
	}
	for _, m := range all {
		if s, quota := m.Status, quotaOf(env, m.Status); !m.Learner && isFull(env, s) {
			return fault.New(fmt.Sprintf("the database of member %s still has %s of its quota of %s, without any history or free space: the alarm NOSPACE stays",
				m.Label(), size(s.Size), size(quota)),
				"delete objects that nobody needs (etcd accepts that, unless they have finalizers or a grace period), and run this again; or set a larger --quota-backend-bytes "+
					"(etcd.local.extraArgs, or in etcd's static Pods) on each control plane")
		}
	}
	if err := env.Etcd.Disarm(ctx); err != nil {
		return err
	}
	if all, err = awaitFullHealth(ctx, env); err != nil {
		return err
	}
	if etcd.HasAlarm(all, "NOSPACE") {
		return fault.New("etcd has raised the alarm NOSPACE again", "`slipway etcd status` shows which member is full; run this again there")
	}
	env.UI.Nextf("etcd accepts writes again; find out what wrote so much")
	return nil
}

// quotaOf returns a member's quota. Before etcd 3.6, members don't say: then it's taken to be the same as this host's.
func quotaOf(env *step.Env, s etcd.Status) int64 {
	if s.Quota > 0 {
		return s.Quota
	}
	pod, _ := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	return manifests.EtcdQuota(pod)
}

// fullAgain is the percentage of its quota from which a database would soon be full again.
const fullAgain = 95

func isFull(env *step.Env, s etcd.Status) bool { return s.Size >= quotaOf(env, s)/100*fullAgain }

// defragment rewrites the databases of due members one after another, the leader's last.
func defragment(ctx context.Context, env *step.Env, due []etcd.Health) error {
	sort.SliceStable(due, func(i, j int) bool { return rank(due[i]) < rank(due[j]) })
	var left []string
	for _, m := range due {
		now, err := awaitFullHealth(ctx, env)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(now, func(h etcd.Health) bool { return h.ID == m.ID })
		if i < 0 {
			continue // it has left etcd
		}
		var unknown unknownSpaceError
		err = hasRoom(ctx, env, now, i)
		if err != nil && !wouldShrink(now[i].Status) {
			continue // such as after an earlier run
		}
		if errors.As(err, &unknown) {
			env.UI.Warn(fmt.Sprintf("member %s is left out, because the space on its host is not known: %v", m.Label(), err), "run `slipway etcd defrag` there")
			left = append(left, m.Label())
			continue
		}
		if err == nil {
			err = defragmentOne(ctx, env, now[i])
		}
		if err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fault.New("these members were not defragmented: "+strings.Join(left, ", "), "run `slipway etcd defrag` on their hosts")
}

func rank(m etcd.Health) int {
	if m.Leads() {
		return 1
	}
	return 0
}

// defragmentOne rewrites a member's database, and waits until it's as good as the others again.
func defragmentOne(ctx context.Context, env *step.Env, m etcd.Health) error {
	env.UI.Printf("Defragmenting %s: %s, of which %s are in use", m.Label(), size(m.Status.Size), size(m.Status.InUse))
	if _, err := env.Etcd.MoveLeader(ctx, etcd.At(m.PeerURL)); err != nil {
		return err
	}
	if err := env.Etcd.Defragment(ctx, m.PeerURL); err != nil {
		return etcd.WithHealth(ctx, env.Etcd, err)
	}
	return env.Etcd.CaughtUp(ctx, etcd.At(m.PeerURL))
}

func size(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
