// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// newStamp is the time in the names of this run's directories. Only these order the backups, so it isn't before any other's, nor
// before the end of the last rollback.
func newStamp(env *step.Env) (string, error) {
	now := env.Host.Now().UTC()
	last, err := upgrading.LastBackupTime(env.Host, node.BackupRoot(env))
	if err != nil {
		return "", err
	}
	rollback, err := upgrading.ReadProgress(env.Host, node.BackupRoot(env))
	if rollback.Finished.After(last) {
		last = rollback.Finished
	}
	if last.After(now) { // the clock was ahead then
		now = last.Add(time.Second)
	}
	return now.Format(host.BackupTime), err
}
