// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps a node's state from before an upgrade. ControlPlane keeps static Pods and a snapshot of etcd, and
// Kubelet keeps the kubelet's files. LastUpgrade finds the last backup, and DetectEdit says whether an operator has edited a
// file. internal/upgrading reads and writes the records; phases/rollback restores them.
package backup

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// snapshotsToKeep is how many snapshots of etcd stay on this host, besides the snapshot for a rollback.
const snapshotsToKeep = 3

// ControlPlane backs up this control plane's manifests before any is replaced, then a snapshot of etcd: a newer API server may
// write data that the old can't read. Each run does, so continuing an interrupted run takes another snapshot. The manifests show
// what was running then, and so whether a rollback may restore the snapshot: see upgrading.Backup.
func ControlPlane(ctx context.Context, env *step.Env, components []node.Replacement) error {
	stamp, err := newStamp(env)
	if err != nil {
		return err
	}
	dir := filepath.Join(node.BackupRoot(env), upgrading.ManifestBackup+stamp)
	env.UI.Printf("Keeping the previous manifests in %s", dir)
	record, err := controlPlaneRecord(ctx, env)
	if err != nil {
		return err
	}
	written := map[string][]byte{}
	for _, c := range components {
		written[c.Name+".yaml"] = c.Wanted
	}
	var paths []string
	for _, component := range manifests.Components(env.Config) {
		paths = append(paths, env.Config.Paths.StaticPod(component))
	}
	if err := backUpAll(env, dir, record, written, paths); err != nil {
		return err
	}
	if node.UnlessLocalEtcd(env) != "" {
		return nil
	}
	if err := ensureSnapshotSpace(ctx, env); err != nil {
		return err
	}
	if err := snapshotEtcd(ctx, env, filepath.Join(node.BackupRoot(env), upgrading.EtcdBackup+stamp)); err != nil {
		return errors.WithMessage(err, "a control plane is not upgraded without a snapshot of etcd")
	}
	return PruneSnapshots(env)
}

// controlPlaneRecord has the facts about this upgrade that a rollback needs. The API may be down by then.
func controlPlaneRecord(ctx context.Context, env *step.Env) (upgrading.Record, error) {
	r := nodeRecord(env)
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return r, err
	}
	r.ClusterConfiguration = string(stored)
	r.KubeletConfiguration, err = cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeletConfigMap, "kubelet")
	if err != nil || node.UnlessLocalEtcd(env) != "" {
		return r, err
	}
	// If this host's etcd has lost its data, the upgrade reports it elsewhere.
	if id, err := node.OwnEtcdCluster(env); err == nil && id != 0 {
		r.EtcdCluster = EtcdID(id)
	}
	return r, nil
}

func nodeRecord(env *step.Env) upgrading.Record {
	authorities, _, err := ClusterCAs(env)
	if err != nil {
		ui.WarnError(env.UI, errors.WithMessage(err, "the backup will not say which cluster it is of"))
	}
	return upgrading.Record{Node: env.Config.Name, To: env.Config.Cluster.KubernetesVersion, CA: ClusterPins(authorities)}
}

// backUpAll backs up the files at paths. written has the files that the run is about to write, by name: the record gets their
// hashes, from which a rollback sees later edits. It's written first, because a backup without a record counts as kubeadm's.
func backUpAll(env *step.Env, dir string, record upgrading.Record, written map[string][]byte, paths []string) error {
	if err := RemoveUnfinished(env); err != nil {
		return err
	}
	record.Written = map[string]string{}
	for name, data := range written {
		record.Written[name] = host.HashOf(data)
	}
	data, err := yaml.Marshal(record)
	if err != nil {
		return err
	}
	if err := backUp(env, dir, upgrading.RecordFile, data); err != nil {
		return err
	}
	for _, path := range paths {
		if err := File(env, dir, path); err != nil {
			return err
		}
	}
	return nil
}

// RemoveUnfinished removes the files that killed runs were writing into their backups. A partial snapshot may be as large as the
// database, and the next run needs the space. PruneSnapshots removes its directory.
func RemoveUnfinished(env *step.Env) error {
	root := node.BackupRoot(env)
	dirs, err := env.Host.ReadDir(root)
	if err != nil {
		return host.IgnoreMissing(err)
	}
	for _, dir := range dirs {
		ours := slices.ContainsFunc([]string{upgrading.ManifestBackup, upgrading.KubeletBackup, upgrading.EtcdBackup},
			func(kind string) bool { return strings.HasPrefix(dir.Name(), kind) })
		if !ours || !dir.IsDir() {
			continue
		}
		entries, err := env.Host.ReadDir(filepath.Join(root, dir.Name()))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if _, left := host.LeftoverOf(e.Name()); !left {
				continue
			}
			if err := env.Host.Remove(filepath.Join(root, dir.Name(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// File backs up a file, if it exists.
func File(env *step.Env, dir, path string) error {
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return err
	}
	return backUp(env, dir, filepath.Base(path), data)
}

// backUp writes a file of a backup, unless a run interrupted within the same second has written an older file.
func backUp(env *step.Env, dir, name string, data []byte) error {
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if kept, err := host.ReadIfExists(env.Host, path); err != nil || kept != nil {
		return err
	}
	_, err := ownership.File{Path: path, Data: data, Mode: 0o600}.Write(env.Host)
	return err
}

// snapshotEtcd writes a snapshot of this node's member, and reads it back to verify it.
func snapshotEtcd(ctx context.Context, env *step.Env, dir string) error {
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	members, err := env.Etcd.Members(ctx)
	if err != nil {
		return err
	}
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	_, err = Snapshot(ctx, env, node.OwnPeerURL(env, members), filepath.Join(dir, upgrading.SnapshotFile), 0)
	return err
}

// PruneSnapshots removes upgrades' older snapshots, and interrupted runs' partial snapshots. It keeps the newest, and the
// snapshot for a rollback, however often the upgrade has been tried since.
func PruneSnapshots(env *step.Env) error {
	whole, err := wholeSnapshots(env)
	if err != nil {
		return err
	}
	old := whole[:max(len(whole)-snapshotsToKeep, 0)]
	if len(old) == 0 {
		return nil
	}
	needed, err := neededSnapshot(env)
	if err != nil {
		ui.WarnError(env.UI, errors.WithMessage(err, "keeping all snapshots of etcd, because it is unknown which one a rollback needs"))
		return nil
	}
	for _, dir := range old {
		if dir == filepath.Dir(needed) {
			continue
		}
		env.UI.Printf("Removing the old snapshot in %s", dir)
		if _, err := env.Host.RemoveTree(dir); err != nil {
			return err
		}
	}
	return nil
}

// wholeSnapshots lists the directories with a snapshot, the oldest first, and removes those with only a part.
func wholeSnapshots(env *step.Env) (dirs []string, err error) {
	entries, err := env.Host.ReadDir(node.BackupRoot(env))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), upgrading.EtcdBackup) || !e.IsDir() {
			continue
		}
		dir := filepath.Join(node.BackupRoot(env), e.Name())
		whole, partial, err := snapshotsIn(env, dir)
		switch {
		case err != nil:
			return nil, err
		case whole:
			dirs = append(dirs, dir)
		case partial:
			if _, err := env.Host.RemoveTree(dir); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(dirs) // by time
	return dirs, nil
}

// neededSnapshot is the snapshot that a rollback of the current upgrade would restore; empty if there's none from before it.
func neededSnapshot(env *step.Env) (string, error) {
	backup, _, err := LastUpgrade(env)
	if err != nil || backup == nil || len(backup.Snapshots) == 0 {
		return "", err
	}
	manifest, err := env.Host.ReadFile(backup.Manifests[manifests.EtcdName])
	if err != nil {
		return "", err
	}
	member, err := MemberIn(manifest)
	if err != nil {
		return "", err
	}
	path, _, err := NewestFitting(env, backup.Snapshots, member.Name, node.EtcdMinor(manifest))
	return path, err
}

// snapshotsIn reports whether a directory has a whole snapshot, or only an interrupted run's part. kubeadm's backups, which are
// copies of the data directory, are neither.
func snapshotsIn(env *step.Env, dir string) (whole, partial bool, err error) {
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return false, false, err
	}
	partial = true
	for _, e := range entries {
		whole = whole || e.Name() == upgrading.SnapshotFile
		partial = partial && strings.HasPrefix(e.Name(), "."+upgrading.SnapshotFile+".")
	}
	return whole, partial, nil
}

// Kubelet backs up the kubelet's files about to be replaced.
func Kubelet(env *step.Env, files []ownership.File) error {
	stamp, err := newStamp(env)
	if err != nil {
		return err
	}
	dir := filepath.Join(node.BackupRoot(env), upgrading.KubeletBackup+stamp)
	written, paths := map[string][]byte{}, []string{}
	for _, f := range files {
		written[filepath.Base(f.Path)] = f.Data
		paths = append(paths, f.Path)
	}
	return backUpAll(env, dir, nodeRecord(env), written, paths)
}
