// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restore says how to restore etcd's data, and from which snapshot.
type restore struct {
	snapshot string
	info     etcd.SnapshotInfo
	member   manifests.LocalMember
	// data is the directory `member` on this host. The new data is made in fresh.
	data, fresh string
	// revision is the keys' present revision; 0 if etcd doesn't answer.
	revision int64
	// members may be members of etcd beside this node's. others names the silent members.
	members []*otherMember
	others  []string
	// begun is set if an earlier run may have stopped etcd.
	begun bool
	// known is set if etcd, its data or the API lists the present members; unread says why the data doesn't. planned marks a
	// plan.
	known, planned bool
	unread         string
}

// restoreBegun reports whether an earlier run may have stopped etcd to restore its data: nothing changes before that run removes
// etcd's static Pod. A run that has put the new data in place counts, finished or not.
func restoreBegun(env *step.Env, p upgrading.Progress) (bool, error) {
	if p.Restored || p.Aside == "" {
		return p.Restored, nil
	}
	moved, err := host.Exists(env.Host, p.Aside)
	if err != nil || moved {
		return moved, err
	}
	runs, err := host.Exists(env.Host, thisnode.StaticPodPath(env.Config, manifests.EtcdName))
	return !runs && err == nil, err
}

// prepareRestore finds out how to restore etcd, if asked to. A restore that has begun must be finished.
func (r *Rollback) prepareRestore(ctx context.Context, env *step.Env) error {
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
	r.restore = o
	if begun {
		o.revision, o.begun = r.Progress.Revision, true
		return nil
	}
	if err := o.checkCluster(env, r.Backup); err != nil {
		return err
	}
	return o.askMembers(ctx, env)
}

// newRestore reads from etcd's static Pod which member to restore, and where.
func newRestore(manifest []byte) (*restore, error) {
	member, err := backup.MemberIn(manifest)
	if err != nil {
		return nil, err
	}
	dir := node.EtcdDataDir(manifest)
	switch {
	case !filepath.IsAbs(dir):
		return nil, errors.New("it does not say where etcd's data is")
	case member.WALDir != "":
		return nil, errors.Errorf("etcd keeps its log in a directory of its own (--wal-dir=%s), which cannot be restored; see https://etcd.io/docs/v3.6/op-guide/recovery/", member.WALDir)
	}
	return &restore{member: member, data: filepath.Join(dir, node.EtcdMemberDir), fresh: filepath.Join(dir, node.EtcdMemberDir+node.NewSuffix)}, nil
}

func (o *restore) loses() string {
	text := fmt.Sprintf("etcd goes back to its snapshot of %s, at revision %d (%d keys). ", o.taken().Format(shownTime), o.info.Revision, o.info.Keys)
	switch {
	case o.revision > 0:
		text += fmt.Sprintf("It is at revision %d now: everything that was written to the cluster in between is lost, %d revisions.", o.revision, max(o.revision-o.info.Revision, 0))
	default:
		text += "Everything that was written to the cluster since then is lost; how much is not known, because etcd was not asked or does not answer."
	}
	if len(o.others) > 0 {
		text += "\nThe other members of etcd must not run any more: run `slipway reset --force` on " + strings.Join(o.others, ", ") +
			" first, and join these nodes again afterwards."
	}
	return text
}

// restoreData gives etcd the snapshot's data. The slow part comes first, while everything still runs; then it stops etcd and
// swaps the directories. An interrupted run never leaves etcd's static Pod without data.
func (r *Rollback) restoreData(ctx context.Context, env *step.Env, mine node.Turn) error {
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
	if err := r.stopControlPlane(ctx, env); err != nil {
		return err
	}
	if err := r.exchangeData(env); err != nil {
		return err
	}
	r.Progress.Restored = true
	return r.Progress.Write(env.Host, node.BackupRoot(env))
}

// makeData makes the new data beside the old. It starts over unless an earlier run has begun the exchange.
func (r *Rollback) makeData(ctx context.Context, env *step.Env) error {
	o := r.restore
	if moved, err := host.Exists(env.Host, r.Progress.Aside); err != nil || moved {
		return err
	}
	if _, err := env.Host.RemoveTree(o.fresh); err != nil {
		return err
	}
	if err := backup.EnsureSpace(ctx, env, o.spaceQuestion(env)); err != nil {
		return err
	}
	env.UI.Printf("Restoring %s to %s", o.snapshot, o.fresh)
	err := env.Host.WriteTree(o.fresh, func(dir string) error {
		f, err := env.Host.Open(o.snapshot)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = etcd.Restore(f, dir, o.member.Name, o.member.PeerURL, o.revision)
		return err
	})
	if err != nil {
		return err
	}
	if err := o.giveAsBefore(env); err != nil {
		return err
	}
	if r.Progress.Aside == "" {
		r.Progress.Aside = o.data + node.AsideSuffix + env.Host.Now().UTC().Format(upgrading.BackupTime)
	}
	r.Progress.Snapshot, r.Progress.Revision = o.snapshot, o.revision
	r.Progress.Finished = time.Time{} // of an earlier rollback without etcd
	return r.Progress.Write(env.Host, node.BackupRoot(env))
}

// giveAsBefore gives the new data to the owner of the old, or of its directory: etcd may run as its own user.
func (o *restore) giveAsBefore(env *step.Env) error {
	info, err := env.Host.Lstat(o.data)
	if errors.Is(err, fs.ErrNotExist) { // lost with its disk
		info, err = env.Host.Lstat(filepath.Dir(o.data))
	}
	if err != nil {
		return err
	}
	if owner, known := host.OwnerIn(info); known && owner != (host.Owner{}) {
		_, err = env.Host.GiveTree(o.fresh, owner)
	}
	return err
}

// stopControlPlane stops etcd and its clients. Without its static Pod, etcd starts neither with the kubelet nor after a reboot.
func (r *Rollback) stopControlPlane(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Stopping the kubelet and the control plane")
	if err := env.Host.Remove(thisnode.StaticPodPath(env.Config, manifests.EtcdName)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(limited, host.StopUnit, node.KubeletUnit); err != nil {
		return err
	}
	for _, component := range slices.Backward(manifests.Components(env.Config)) { // the API server before etcd
		if err := node.StopContainers(ctx, env, component, node.GraceOf(env, component)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rollback) exchangeData(env *step.Env) error {
	o := r.restore
	moved, err := host.Exists(env.Host, r.Progress.Aside)
	if err != nil {
		return err
	}
	if !moved {
		env.UI.Printf("Keeping etcd's present data in %s", r.Progress.Aside)
		if _, err := env.Host.Rename(o.data, r.Progress.Aside); err != nil && !errors.Is(err, fs.ErrNotExist) { // lost with its disk
			return err
		}
	}
	_, err = env.Host.Rename(o.fresh, o.data)
	return err
}
