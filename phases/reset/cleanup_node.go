// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	stderrors "errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

const (
	// askTimeout bounds questions to something that may be gone, stopTimeout the kubelet's stop, which takes a second unless it
	// hangs. Where something is gone, the error comes at once.
	askTimeout  = 30 * time.Second
	stopTimeout = 2 * time.Minute
)

// runCleanupNode first stops the kubelet and its Pods, then removes the files they run on, so that nothing comes back. Records of
// where things are go after those things, so the phase can be interrupted anywhere and run again. Failing to stop something is a
// warning, failing to remove it an error at the end.
func runCleanupNode(ctx context.Context, env *step.Env) error {
	c := &cleanup{Env: env, announced: map[string]bool{}}
	if err := c.findNetwork(); err != nil {
		return err
	}
	for _, step := range []func(context.Context){
		c.endTrial,
		c.endPods,
		c.unmount,
		c.findEtcdDirs,
		c.removeEtcdData,
		c.removeBackups,
		c.removeEtcdClient,
		c.removeDirectories,
		c.removeAccounts,
		c.removeNetwork,
	} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		step(ctx)
	}
	c.nameBackups()
	c.conclude()
	return errors.WithMessage(stderrors.Join(c.failed...), "not everything could be removed; fix the problem and run the same command again")
}

type cleanup struct {
	*step.Env
	changed bool
	warned  bool
	failed  []error
	// etcdDirs hold etcd's data, and data that was set aside.
	etcdDirs []string
	// dataLeft reports that etcd's data, or a backup of it, couldn't be removed.
	dataLeft bool
	// kubeletRuns reports that the kubelet may still run; stopped is when this run suspended or ended it, zero if it didn't run.
	kubeletRuns bool
	stopped     time.Time
	// isNode reports whether this host was a node, or part of one, when the run began. network is nil if it wasn't, and shows no
	// sign of having been a node before.
	isNode  bool
	network *podNetwork
	// announced has the IDs of Pods the user has been told about.
	announced map[string]bool
}

func (c *cleanup) warnf(format string, args ...any) { c.warn(fmt.Sprintf(format, args...), "") }

func (c *cleanup) warn(message, remedy string) {
	c.warned = true
	c.UI.Warn(message, remedy)
}

func (c *cleanup) record(changed bool, err error) {
	c.changed = c.changed || changed
	if err != nil {
		c.failed = append(c.failed, err)
	}
}

func (c *cleanup) conclude() {
	switch {
	case len(c.failed) > 0 || c.warned && !c.changed:
	case !c.changed:
		c.UI.Nextf("Nothing to do: this host is not a node")
	case c.Config.Name != "":
		c.UI.Nextf("This host has been reset. If the cluster still exists, delete the Node: kubectl delete node %s", c.Config.Name)
	default:
		c.UI.Nextf("This host has been reset")
	}
}

// endTrial gives up the way back of a change that was interrupted on trial: nothing of this node is to come back.
func (c *cleanup) endTrial(ctx context.Context) {
	record, err := trial.Last(c.Env)
	if err == nil && record != nil && !record.Finished() {
		err = trial.RemoveUnits(ctx, c.Env, false)
		if err == nil {
			record.Cause = "the node was reset"
			err = record.Set(c.Env, trial.Reverted)
		}
		c.record(err == nil, nil)
	}
	c.record(false, host.IgnoreForbidden(err))
}

// unmount unmounts the kubelet's volumes, all below these two directories. Other mounts belong to someone else, and the
// directories themselves may be mount points.
func (c *cleanup) unmount(context.Context) {
	for _, name := range []string{"pods", "plugins"} {
		mounts, err := c.Host.Mounts(filepath.Join(c.Config.Paths.Kubelet, name))
		c.record(false, err)
		if len(mounts) > 0 {
			c.UI.Printf("Unmounting %d volumes", len(mounts))
		}
		for _, m := range mounts {
			err := c.Host.Unmount(m, c.Config.Reset.UnmountFlags)
			c.record(err == nil, err)
		}
	}
}

// removeTree removes a directory that only a node uses.
func (c *cleanup) removeTree(path string) {
	done, err := c.Host.RemoveTree(path)
	if done.Changed {
		c.UI.Printf("Removed %s", path)
	}
	for _, kept := range done.Kept {
		c.warnf("%s stays: something that is not the kubelet's is mounted there", kept)
	}
	c.record(done.Changed, err)
}

// removeFile removes a file; a directory in its place stays.
func (c *cleanup) removeFile(path string) {
	info, err := c.Host.Lstat(path)
	if err != nil {
		c.record(false, host.IgnoreForbidden(host.IgnoreMissing(err)))
		return
	}
	if info.IsDir() {
		c.warnf("%s stays: it is a directory", path)
		return
	}
	err = c.Host.Remove(path)
	c.record(err == nil, err)
}

func (c *cleanup) removeEmpty(path string) {
	removed, err := c.Host.RemoveEmpty(path)
	c.record(removed, err)
}
