// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Names in etcd's data directory.
const (
	// EtcdMemberDir has all of etcd's data.
	EtcdMemberDir = "member"
	// EtcdNewDataDir has data that's to take the place of etcd's, until it's complete.
	EtcdNewDataDir = EtcdMemberDir + ".new"
	// EtcdReplayDir has a copy of the data, to which an etcd adds the end of its log.
	EtcdReplayDir = EtcdMemberDir + ".replay"
	oldInfix      = ".before-"
)

// EtcdReplayName is the name of the static Pod of an etcd that works in EtcdReplayDir, and of its container.
const EtcdReplayName = "etcd-replay"

// OldEtcdDataName is a name for data that a workflow, such as rollback, has set aside at this time.
func OldEtcdDataName(workflow string, at time.Time) string {
	return EtcdMemberDir + oldInfix + workflow + "-" + at.UTC().Format(host.BackupTime)
}

// ParseOldEtcdData reports whether Slipway has given this name to something beside etcd's data: to data set aside at a time, or,
// with the zero time, to data that isn't in place yet.
func ParseOldEtcdData(name string) (at time.Time, found bool) {
	if of, partial := host.LeftoverOf(name); partial {
		name = of
	}
	if name == EtcdNewDataDir || name == EtcdReplayDir {
		return time.Time{}, true
	}
	rest, found := strings.CutPrefix(name, EtcdMemberDir+oldInfix)
	workflow, stamp, _ := strings.Cut(rest, "-")
	at, err := time.Parse(host.BackupTime, stamp)
	return at, found && workflow != "" && err == nil
}
