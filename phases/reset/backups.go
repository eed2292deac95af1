// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
)

// etcdBackups are copies of etcd's data left by upgrades and rollbacks: snapshots, kubeadm's copies, and data a restore set
// aside. All of them hold every Secret of the cluster.
func (c *cleanup) etcdBackups() (paths []string) {
	root := node.BackupRoot(c.Env)
	for _, name := range c.entries(root) {
		if strings.HasPrefix(name, upgrading.EtcdBackup) {
			paths = append(paths, filepath.Join(root, name))
		}
	}
	for _, dir := range c.etcdDirs {
		for _, name := range c.entries(dir) {
			if _, aside := thisnode.ParseOldEtcdData(name); aside {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	return paths
}

// findEtcdDirs notes where etcd's data may have been set aside, before the files that say so are removed.
func (c *cleanup) findEtcdDirs(context.Context) {
	c.etcdDirs = []string{config.DefaultEtcdDataDir}
	if data, err := c.Host.ReadFile(asidePath(c.Config)); err == nil {
		c.etcdDirs = append(c.etcdDirs, node.EtcdDataDir(data))
	}
	if progress, err := upgrading.ReadProgress(c.Host, node.BackupRoot(c.Env)); err == nil {
		c.etcdDirs = append(c.etcdDirs, filepath.Dir(progress.OldData))
	}
	slices.Sort(c.etcdDirs)
	c.etcdDirs = slices.DeleteFunc(slices.Compact(c.etcdDirs), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// entries are the names in a directory; none if it's missing.
func (c *cleanup) entries(dir string) (names []string) {
	entries, err := c.Host.ReadDir(dir)
	c.record(false, host.IgnoreForbidden(host.IgnoreMissing(err)))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (c *cleanup) removeBackups(context.Context) {
	if !c.Config.Reset.Backups {
		return
	}
	failures := len(c.failed)
	defer func() { c.dataLeft = c.dataLeft || len(c.failed) > failures }()
	for _, path := range c.etcdBackups() {
		c.removeTree(path)
		if dir := filepath.Dir(path); dir != node.BackupRoot(c.Env) {
			c.removeEmpty(dir)
		}
	}
}

// endRollback ends the last rollback of this node, so that nothing waits for it. The record of its end stays as long as there are
// backups: it separates these from the next node's, even of an upgrade to the same version. It also stays as long as data is where
// the rollback set etcd's aside, as a later reset may have to find that.
func (c *cleanup) endRollback() {
	root := node.BackupRoot(c.Env)
	p, err := upgrading.ReadProgress(c.Host, root)
	last, lastErr := upgrading.LastBackupTime(c.Host, root)
	ended := upgrading.Progress{Began: p.Began, Ended: p.Ended, Finished: p.Finished}
	if slices.ContainsFunc(c.etcdBackups(), func(path string) bool { return filepath.Dir(path) == filepath.Dir(p.OldData) }) {
		ended.OldData = p.OldData
	}
	unneeded := lastErr == nil && last.IsZero() && ended.OldData == ""
	if err != nil || p.Began.IsZero() || unneeded {
		c.removeFile(filepath.Join(root, thisnode.RollbackFile))
		return
	}
	ended.Finish(c.Host.Now(), last)
	if ended != p {
		err := ended.Write(c.Host, root)
		c.record(err == nil, err)
	}
}

func (c *cleanup) nameBackups() {
	paths := c.etcdBackups()
	if len(paths) == 0 {
		return
	}
	c.warn("backups of etcd's data stay, which hold every Secret of the cluster: "+strings.Join(paths, ", "),
		"remove them when nobody needs them: rm -r "+strings.Join(paths, " "))
}
