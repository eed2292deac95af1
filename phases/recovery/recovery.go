// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package recovery has the workflow of `etcd recover` (New, then Recovery.Phases), for an etcd that has lost its quorum for good.
// This host's member continues as a cluster of one, with everything in its log. members.go and others.go make sure that the other
// members are gone; wal.go, replay.go and data.go build the new data. docs/design/etcd-recover.md has the reasons.
package recovery

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

const command = "etcd recover"

// Options are the operator's decisions.
type Options struct {
	// Drop gives up changes that may not be committed. By default, they stay.
	Drop bool
	// Abandon names members that still answer, and whose data is given up.
	Abandon []string
}

// flags are the options in the form of the command line, for the journal of an interrupted run.
func (o Options) flags() string {
	if o.Drop {
		return "--drop-uncommitted"
	}
	return ""
}

// Recovery makes this host's member the only one of a new cluster.
type Recovery struct {
	Options

	own         manifests.LocalMember
	replacement node.EtcdDataReplacement
	journal     node.EtcdJournal
	// begun is set if an earlier run may have stopped etcd, made if it has begun to put the new data in place: then it has to finish.
	begun, made bool
	end         logEnd
	// others are the other members. None of them answered when they were asked, except members that are given up.
	others []etcd.Member
	asked  time.Time
	// logs is what the members that are given up say about their logs, answering the members that do.
	logs, answering string
}

// New reads this host's data, asks the other members, and fails unless etcd has lost its quorum and nobody answers. It changes
// nothing.
func New(ctx context.Context, env *step.Env, o Options) (*Recovery, error) {
	r, err := read(env, o)
	if err != nil || r.made {
		return r, err
	}
	return r, r.askMembers(ctx, env)
}

// read reads this host's data.
func read(env *step.Env, o Options) (*Recovery, error) {
	if env.Config.Cluster.Etcd.External != nil {
		return nil, fault.New("this cluster's etcd is external, and Slipway doesn't change it", "recover it where it runs: https://etcd.io/docs/v3.6/op-guide/recovery/")
	}
	r := &Recovery{Options: o}
	if err := r.findEtcd(env); err != nil {
		return nil, err
	}
	made, err := r.moved(env)
	if err != nil {
		return nil, err
	}
	if r.made = made; !made {
		err = r.readLog(env)
	}
	return r, err
}

// findEtcd finds this host's etcd by its static Pod, or by the journal of an interrupted run, which has removed the Pod.
func (r *Recovery) findEtcd(env *step.Env) (err error) {
	if r.journal, err = node.ReadEtcdJournal(env); err != nil {
		return err
	}
	if r.begun, err = (node.EtcdDataReplacement{OldData: r.journal.OldData}).Started(env); err != nil {
		return err
	}
	manifest, err := r.resume(env)
	if err != nil {
		return err
	}
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	if !r.begun {
		found, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		r.journal = node.EtcdJournal{Command: command, From: r.flags(), Manifest: cmp.Or(string(found), manifest)}
	}
	if by, interrupted, _ := thisnode.InterruptedEtcd(env.Host, env.Config.Paths.Kubernetes); r.journal.Manifest == "" && interrupted {
		return by
	}
	if r.journal.Manifest == "" {
		return fault.New("this host has no etcd to recover: "+path+" does not exist", "run this on a control plane whose disk has etcd's data, or put the file back")
	}
	if r.own, err = backup.MemberIn([]byte(r.journal.Manifest)); err == nil {
		r.replacement, err = node.NewEtcdDataReplacement([]byte(r.journal.Manifest))
	}
	r.replacement.OldData = r.journal.OldData
	return errors.WithMessage(err, path)
}

// resume goes on from an interrupted run. While etcd's own data is in place, the decision about uncommitted changes can still be
// another: a replay may not work. A restore that was interrupted as early doesn't count, but has kept etcd's static Pod.
func (r *Recovery) resume(env *step.Env) (manifest string, err error) {
	if !r.begun || r.journal.Command == command && r.journal.From == r.flags() {
		return "", nil
	}
	moved, err := r.moved(env)
	switch {
	case err != nil:
		return "", err
	case moved:
		return "", r.journal.Unfinished()
	case r.journal.Command == command:
		r.journal.From = r.flags()
		return "", nil
	}
	r.begun = false
	return r.journal.Manifest, nil
}

// Summary says what happens, before the user confirms.
func (r *Recovery) Summary() string {
	if r.made {
		return "This finishes the recovery that was interrupted. The new data is complete."
	}
	text := ""
	if r.begun {
		text = "A recovery was interrupted here before it moved any data.\n"
	}
	text += fmt.Sprintf("etcd continues as a new cluster whose only member is this host's, %s. The other members are given up, with everything that only they have: %s.\n"+
		"Their hosts must be off, and stay off: otherwise they may continue as the former cluster.\n%s",
		r.own.Name, labels(r.others), r.end.String()+r.logs)
	if r.end.uncertain > 0 {
		text += "\n" + r.decision()
	}
	if r.end.corrupt {
		text += "\netcd has the alarm CORRUPT, so this host's keys may be damaged: check the cluster's objects afterwards. " +
			"The alarm ends, because a single member cannot differ from others."
	}
	if r.answering != "" {
		return text + "\nCOMPARE THE LOGS FIRST, by term and entry: `slipway etcd recover --dry-run` on the hosts of " + r.answering +
			", and of any other member whose disk survives."
	}
	return text + "\nIf another host's disk survives, compare its log first: `slipway etcd recover --dry-run` there."
}

func (r *Recovery) decision() string {
	if r.Drop {
		return "Changes that may be uncommitted are DROPPED (--drop-uncommitted)."
	}
	return "Changes that may be uncommitted are kept, because a client may rely on them; --drop-uncommitted drops them."
}

// Phases is the workflow.
func (r *Recovery) Phases() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Show the data that etcd will start from, and check that nothing is in the way", Run: r.preflight},
		{Name: "stop", Summary: "Stop this host's control plane", Run: r.stop},
		{Name: "replay", Summary: "Have etcd replay its log into a copy of its database", Run: r.replay},
		{Name: "etcd-data", Summary: "Put the data of a new cluster with one member in place of etcd's", Run: r.replaceData},
		{Name: "control-plane", Summary: "Start the control plane, and wait until the API works", Run: r.start},
		{Name: "finish", Summary: "Record that the recovery is complete, and show the next steps", Run: r.finish},
	}
}

// justNow is how long the other members' silence counts: asking them again takes seconds.
const justNow = time.Second

// recheck is for the time that the question took: a member may have come back, or another command may have begun or ended.
func (r *Recovery) recheck(ctx context.Context, env *step.Env) error {
	now, err := read(env, r.Options)
	if err != nil {
		return err
	}
	if now.begun != r.begun || now.made != r.made || now.journal.Manifest != r.journal.Manifest {
		return node.ErrEtcdChanged()
	}
	now.others, now.asked, now.logs, now.answering, now.journal.Others = r.others, r.asked, r.logs, r.answering, r.journal.Others
	now.end.corrupt = now.end.corrupt || r.end.corrupt
	if !now.made && env.Host.Now().Sub(r.asked) > justNow {
		err = now.askMembers(ctx, env)
	}
	*r = *now
	return err
}

func (r *Recovery) preflight(ctx context.Context, env *step.Env) error {
	if err := r.recheck(ctx, env); err != nil {
		return err
	}
	env.UI.Printf("%s", strings.ReplaceAll(r.Summary(), "\n", " "))
	if r.begun {
		return nil // it has to go on
	}
	if err := r.replacement.CheckPrerequisites(ctx, env); err != nil {
		return err
	}
	if err := r.replacement.Clear(env); err != nil {
		return err
	}
	return node.Check(ctx, env, append(preflight.Rollback(), trial.NewUnfinishedCheck(env), r.spaceQuestion(r.end.copies()))...)
}

// spaceQuestion checks the space for copies of the data beside the present.
func (r *Recovery) spaceQuestion(copies uint64) preflight.Check {
	need := preflight.Need{Dir: filepath.Dir(r.replacement.Data), Bytes: copies * (uint64(r.end.size) + backup.LogsRoom)}
	return backup.RestoreSpace("`slipway etcd snapshot prune` removes old snapshots", need)
}

// finish ends the recovery: the next one begins from the start.
func (r *Recovery) finish(ctx context.Context, env *step.Env) error {
	if err := env.Host.Remove(node.EtcdJournalPath(env.Config.Paths)); err != nil {
		return err
	}
	env.UI.Nextf("etcd serves again, with this host's member only. Its previous data is in %s, until `slipway etcd prune` removes it", r.replacement.OldData)
	if r.isFull(ctx, env) {
		env.UI.Nextf("etcd is full (alarm NOSPACE), so it accepts no writes yet: run `slipway etcd defrag` here, before other hosts join")
	}
	env.UI.Nextf("Before any of these hosts (%s) boots with its old disk, take its address out of the load balancer; then run `slipway reset --force` there at once. "+
		"Two of them would serve the former cluster, and whatever is written to that is lost", strings.Join(r.journal.Others, ", "))
	node.SayRejoin(env, r.journal.Others)
	return nil
}

// isFull reports whether the recovered etcd refuses writes. A plan recovers nothing, so it has no cluster to ask.
func (r *Recovery) isFull(ctx context.Context, env *step.Env) bool {
	if r.journal.Cluster == "" {
		return false
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	return err == nil && etcd.HasAlarm(all, "NOSPACE")
}

func without(members []etcd.Member, drop func(etcd.Member) bool) []etcd.Member {
	return slices.DeleteFunc(slices.Clone(members), drop)
}
