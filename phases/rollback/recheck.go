// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"reflect"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// recheck is for the time that the question took: another command may have begun or ended, a member of etcd may have come back, and
// somebody may have edited a file. The snapshot is the same.
func (r *Rollback) recheck(ctx context.Context, env *step.Env) error {
	root := node.BackupRoot(env)
	progress, err := upgrading.ReadProgress(env.Host, root)
	if err != nil {
		return err
	}
	last, err := upgrading.LastBackup(env.Host, root, progress)
	if err != nil {
		return err
	}
	changed := fault.New("another command has changed the backups or the rollback's progress in "+root+" since this one read them",
		"run this command again")
	if !reflect.DeepEqual(progress, r.seen) || !reflect.DeepEqual(last, r.Backup) {
		return changed
	}
	if err := checkNoOtherRestore(env); err != nil {
		return err
	}
	if r.restore != nil {
		if !progress.IsOf(last) {
			progress = upgrading.Progress{}
		}
		switch begun, err := restoreBegun(env, progress); {
		case err != nil:
			return err
		case begun != r.restore.begun:
			return changed
		case !begun:
			if err := r.askMembers(ctx, env); err != nil {
				return err
			}
		}
	}
	return r.findEdited(ctx, env)
}
