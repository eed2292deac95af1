// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// chooseSnapshot takes the newest fitting snapshot from before the upgrade, or an earlier run's choice.
func (r *Rollback) chooseSnapshot(env *step.Env, o *restore, minor string) (err error) {
	list := r.Backup.Snapshots
	if r.Progress.Snapshot != "" {
		list = []string{r.Progress.Snapshot}
	}
	if len(list) == 0 {
		message := "there is no snapshot of etcd from before the upgrade in " + node.BackupRoot(env)
		if len(r.Backup.Later) > 0 {
			message += "; these were taken after the API server had been replaced: " + strings.Join(r.Backup.Later, ", ")
		}
		return fault.New(message, "without --restore-etcd, the static Pods go back and etcd's data stays")
	}
	o.snapshot, o.info, err = backup.NewestFitting(env, list, o.Own.Name, minor)
	if err == nil || r.Progress.Snapshot == "" || !r.dataMade(env, o) {
		return err
	}
	o.snapshot, o.made = r.Progress.Snapshot, true
	for _, m := range o.Own.Initial {
		o.info.Members = append(o.info.Members, etcd.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
	return nil
}

// dataMade reports whether an earlier run has made all of the new data, so that the snapshot isn't needed any more.
func (r *Rollback) dataMade(env *step.Env, o *restore) bool {
	x := o.replacement
	x.OldData = r.Progress.OldData
	if moved, err := x.Moved(env); err == nil && moved || r.Progress.Restored {
		return true
	}
	x.Data = x.NewData
	return r.Progress.Cluster != "" && x.CheckData(env, r.Progress.Cluster) == nil
}

// checkCluster fails if this host's etcd has joined another cluster since the snapshot.
func (o *restore) checkCluster(env *step.Env, backup *upgrading.Backup) error {
	record, err := upgrading.RecordBeside(env.Host, o.snapshot)
	if err != nil || record.EtcdCluster == "" {
		return err
	}
	now, err := node.ReadEtcdData(env)
	if err != nil || now.Log == "" {
		return nil //nolint:nilerr // Rollback.checkEtcdCluster has said so.
	}
	return sameEtcdCluster(now, "the snapshot "+o.snapshot, []string{record.EtcdCluster}, backup.EtcdRecords)
}

func (o *restore) taken() time.Time {
	stamp := strings.TrimPrefix(filepath.Base(filepath.Dir(o.snapshot)), upgrading.EtcdBackup)
	t, _ := time.Parse(host.BackupTime, stamp) // the snapshot was found by its time
	return t
}

// spaceQuestion checks the space for the restored data beside the present. Once etcd may be stopped, the restore has to go on.
func (o *restore) spaceQuestion(env *step.Env, images ...preflight.Need) preflight.Check {
	need := preflight.Need{Dir: filepath.Dir(o.replacement.NewData), Bytes: uint64(o.info.Size) + backup.LogsRoom}
	check := backup.RestoreSpace("old snapshots are in "+node.BackupRoot(env), need, images...)
	if o.begun {
		check.Run = func(context.Context, preflight.View) []fault.Finding { return nil }
	}
	return check
}
