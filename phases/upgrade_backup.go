// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
)

// The names of backups are kubeadm's, with the time of the upgrade. What one upgrade of a control plane replaces has one
// time.
const (
	backupTime      = "2006-01-02-15-04-05"
	manifestBackup  = "kubeadm-backup-manifests-"
	etcdBackup      = "kubeadm-backup-etcd-"
	kubeletBackup   = "kubeadm-kubelet-config-"
	snapshotFile    = "snapshot.db"
	snapshotsToKeep = 3
)

// backupRoot is where upgrades keep what they replace.
func backupRoot(env *Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }

// backUpControlPlane keeps the manifests that are about to be replaced, and a snapshot of etcd if that is one of them. What
// an interrupted run has replaced already is in the backup of that run.
func backUpControlPlane(ctx context.Context, env *Env, components []componentUpgrade) error {
	stamp := env.Host.Now().UTC().Format(backupTime)
	dir := filepath.Join(backupRoot(env), manifestBackup+stamp)
	replaced := slices.DeleteFunc(slices.Clone(components), func(c componentUpgrade) bool {
		return c.before == nil || manifests.SameStaticPod(c.before, c.wanted)
	})
	if len(replaced) > 0 {
		env.UI.Printf("Keeping the previous manifests in %s", dir)
	}
	for _, c := range replaced {
		if err := backUp(env, dir, c.name+".yaml", c.before); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(components, func(c componentUpgrade) bool { return c.name == manifests.EtcdName }) {
		return nil
	}
	if err := snapshotEtcd(ctx, env, filepath.Join(backupRoot(env), etcdBackup+stamp)); err != nil {
		return errors.WithMessage(err, "etcd is not upgraded without a snapshot")
	}
	return pruneSnapshots(env)
}

func backUp(env *Env, dir, name string, data []byte) error {
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	_, err := ownership.File{Path: filepath.Join(dir, name), Data: data, Mode: 0o600}.Write(env.Host)
	return err
}

// snapshotEtcd writes a snapshot of this node's member, and reads it again to see that it is whole.
func snapshotEtcd(ctx context.Context, env *Env, dir string) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, snapshotFile)
	env.UI.Printf("Writing a snapshot of etcd to %s", path)
	err := env.Host.WriteStream(path, func(w io.Writer) error {
		_, err := env.Etcd.Snapshot(ctx, member.PeerURL, w)
		return err
	})
	if err != nil {
		return err
	}
	f, err := env.Host.Open(path)
	if errors.Is(err, host.ErrNotInPlan) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := etcd.VerifySnapshot(f)
	if err != nil {
		return err
	}
	env.UI.Printf("The snapshot is whole: %d keys, revision %d, %d bytes", info.Keys, info.Revision, info.Size)
	return nil
}

// pruneSnapshots removes all but the newest of the snapshots that upgrades have made, and those that an interrupted run
// has not completed.
func pruneSnapshots(env *Env) error {
	entries, err := env.Host.ReadDir(backupRoot(env))
	if err != nil {
		return err
	}
	var ours []string
	for _, e := range entries {
		dir := filepath.Join(backupRoot(env), e.Name())
		if !strings.HasPrefix(e.Name(), etcdBackup) {
			continue
		}
		whole, partial, err := snapshotsIn(env, dir)
		switch {
		case err != nil:
			return err
		case whole:
			ours = append(ours, dir)
		case partial:
			if _, err := env.Host.RemoveTree(dir); err != nil {
				return err
			}
		}
	}
	slices.Sort(ours) // by time
	for _, dir := range ours[:max(len(ours)-snapshotsToKeep, 0)] {
		env.UI.Printf("Removing the old snapshot in %s", dir)
		if _, err := env.Host.RemoveTree(dir); err != nil {
			return err
		}
	}
	return nil
}

// snapshotsIn reports what a directory of a backup has: a whole snapshot, or only what an interrupted run wrote of one.
// kubeadm's backups, which are copies of the data directory, are neither.
func snapshotsIn(env *Env, dir string) (whole, partial bool, err error) {
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return false, false, err
	}
	partial = true
	for _, e := range entries {
		whole = whole || e.Name() == snapshotFile
		partial = partial && strings.HasPrefix(e.Name(), "."+snapshotFile+".")
	}
	return whole, partial, nil
}

// backUpKubelet keeps the kubelet's files that are about to be replaced.
func backUpKubelet(env *Env, files []ownership.File) error {
	dir := filepath.Join(backupRoot(env), kubeletBackup+env.Host.Now().UTC().Format(backupTime))
	for _, f := range files {
		data, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := backUp(env, dir, filepath.Base(f.Path), data); err != nil {
			return err
		}
	}
	return nil
}
