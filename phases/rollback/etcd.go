// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restore says how to restore etcd's data, and from which snapshot.
type restore struct {
	snapshot    string
	info        etcd.SnapshotInfo
	replacement node.EtcdDataReplacement
	node.EtcdOthers
	// begun is set if an earlier run may have stopped etcd.
	begun bool
	// made is set if the snapshot is gone, and an earlier run has made the new data from it.
	made bool
}

// restoreBegun reports whether an earlier run may have stopped etcd to restore its data: nothing changes before that run removes
// etcd's static Pod. A run that has put the new data in place counts, finished or not.
func restoreBegun(env *step.Env, p upgrading.Progress) (bool, error) {
	if p.Restored {
		return true, nil
	}
	return node.EtcdDataReplacement{OldData: p.OldData}.Started(env)
}

// checkNoOtherRestore fails if another workflow that replaces etcd's data was interrupted here: it would go on with this one's, or
// this one with its.
func checkNoOtherRestore(env *step.Env) error {
	j, err := node.ReadEtcdJournal(env)
	if err != nil {
		return err
	}
	begun, err := node.EtcdDataReplacement{OldData: j.OldData}.Started(env)
	if err == nil && begun {
		err = j.Unfinished()
	}
	return err
}

// prepareRestore finds out how to restore etcd, if asked to. A restore that has begun must be finished.
func (r *Rollback) prepareRestore(ctx context.Context, env *step.Env) error {
	if err := checkNoOtherRestore(env); err != nil {
		return err
	}
	begun, err := restoreBegun(env, r.Progress)
	switch {
	case err != nil:
		return err
	case !begun: // a run makes its preparations again
		r.Progress = upgrading.Progress{Began: r.Backup.Began, Ended: r.Backup.Ended, Finished: r.Progress.Finished}
	case !r.RestoreEtcd && r.Progress.Finished.IsZero():
		return fault.New("etcd's data is being restored from "+r.Progress.Snapshot+" by a run that was interrupted", "run the same command again, with --restore-etcd")
	}
	if !r.RestoreEtcd {
		return nil
	}
	manifest := r.before[manifests.EtcdName]
	if manifest == nil {
		return errors.New("the backup has no static Pod of etcd, so etcd cannot be restored; leave out --restore-etcd")
	}
	o, err := newRestore(manifest)
	if err != nil {
		return errors.WithMessage(err, r.Backup.Manifests[manifests.EtcdName])
	}
	if err := r.chooseSnapshot(env, o, node.EtcdMinor(manifest)); err != nil {
		return err
	}
	r.restore, o.Earlier = o, o.info.Members
	if begun {
		o.Revision, o.begun = r.Progress.Revision, true
		return nil
	}
	return r.askMembers(ctx, env)
}

// askMembers fails if the snapshot is of another cluster than etcd's data, or if other members run.
func (r *Rollback) askMembers(ctx context.Context, env *step.Env) error {
	o := r.restore
	if err := o.checkCluster(env, r.Backup); err != nil {
		return err
	}
	o.EtcdOthers = node.EtcdOthers{Own: o.Own, Data: o.Data, Earlier: o.Earlier}
	return o.Ask(ctx, env, "run this command again")
}

// newRestore reads from etcd's static Pod which member to restore, and where.
func newRestore(manifest []byte) (*restore, error) {
	member, err := backup.MemberIn(manifest)
	if err != nil {
		return nil, err
	}
	replacement, err := node.NewEtcdDataReplacement(manifest)
	return &restore{replacement: replacement, EtcdOthers: node.EtcdOthers{Own: member, Data: replacement.Data}}, err
}

// findings are the members that may still run. Once etcd may be stopped, the restore has to go on.
func (o *restore) findings() []fault.Finding {
	if o.begun {
		return nil
	}
	return o.Findings()
}

func (o *restore) lossSummary() string {
	text := fmt.Sprintf("etcd goes back to its snapshot of %s, at revision %d (%d keys). ", ui.Time(o.taken()), o.info.Revision, o.info.Keys)
	switch {
	case o.made:
		text = fmt.Sprintf("etcd goes back to its snapshot of %s. Everything that was written to the cluster since then is lost.", ui.Time(o.taken()))
	case o.Revision > 0:
		text += fmt.Sprintf("It is at revision %d now: everything that was written to the cluster in between is lost, %d revisions.", o.Revision, max(o.Revision-o.info.Revision, 0))
	default:
		text += "Everything that was written to the cluster since then is lost; how much is not known, because etcd was not asked or does not answer."
	}
	if len(o.Silent) > 0 {
		text += "\nThe other members of etcd must not run any more: " + o.UnlessNeeded() + "run `slipway reset --force` on " + strings.Join(o.Silent, ", ") +
			" first, and join these nodes again afterwards."
	}
	if len(o.Foreign) > 0 {
		text += "\nThese members of etcd must never run again; another host may have their address: " + strings.Join(o.Foreign, ", ")
	}
	return text
}

// restoreData gives etcd the snapshot's data. The slow part comes first, while everything still runs; then it stops etcd and
// swaps the directories. An interrupted run never leaves etcd's static Pod without data.
func (r *Rollback) restoreData(ctx context.Context, env *step.Env, mine node.Lease) error {
	if r.restore != nil && r.restore.begun { // an earlier run has stopped etcd, with or without the Lease
		mine.KeepOnFailure()
	}
	if r.restore == nil || r.Progress.Restored {
		return nil
	}
	if err := r.makeData(ctx, env); err != nil {
		return err
	}
	mine.KeepOnFailure()
	if err := r.restore.replacement.Stop(ctx, env, node.StopGrace); err != nil {
		return err
	}
	if err := r.restore.replacement.Replace(env); err != nil {
		return err
	}
	if err := r.restore.replacement.CheckData(env, r.Progress.Cluster); err != nil {
		return err
	}
	r.Progress.Restored = true
	return r.Progress.Write(env.Host, node.BackupRoot(env))
}

// makeData makes the new data beside the old, and notes where the old data goes.
func (r *Rollback) makeData(ctx context.Context, env *step.Env) error {
	o := r.restore
	o.replacement.OldData = r.Progress.OldData
	if !o.made {
		if err := r.buildData(ctx, env); err != nil {
			return err
		}
	}
	o.replacement.OldData = cmp.Or(o.replacement.OldData, o.replacement.OldDataPath("rollback", env.Host.Now()))
	r.Progress.OldData, r.Progress.Snapshot, r.Progress.Revision = o.replacement.OldData, o.snapshot, o.Revision
	r.Progress.Finished = time.Time{} // of an earlier rollback without etcd
	return r.Progress.Write(env.Host, node.BackupRoot(env))
}

// buildData restores the snapshot beside the present data.
func (r *Rollback) buildData(ctx context.Context, env *step.Env) error {
	o := r.restore
	ready := func() error {
		err := node.Check(ctx, env, o.spaceQuestion(env))
		if err == nil {
			env.UI.Printf("Restoring %s to %s", o.snapshot, o.replacement.NewData)
		}
		return err
	}
	return o.replacement.Build(ctx, env, ready, func(dir string) error {
		f, err := env.Host.Open(o.snapshot)
		if err != nil {
			return err
		}
		defer f.Close()
		made, err := etcd.Restore(ctx, f, dir, o.Own.Name, o.Own.PeerURL, o.Revision, env.Host.Now())
		r.Progress.Cluster = node.EtcdClusterText(made)
		return err
	})
}
