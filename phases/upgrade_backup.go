// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
)

// snapshotsToKeep is how many snapshots of etcd upgrades leave on this host.
const snapshotsToKeep = 3

// backupRoot is where upgrades keep what they replace.
func backupRoot(env *Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }

// backUpControlPlane keeps the manifests that are about to be replaced, and a snapshot of etcd with the manifest that it is
// for: a newer API server may write what the one before cannot read. What an interrupted run has replaced already is in the
// backup of that run.
func backUpControlPlane(ctx context.Context, env *Env, components []componentUpgrade) error {
	stamp := env.Host.Now().UTC().Format(upgrading.BackupTime)
	dir := filepath.Join(backupRoot(env), upgrading.ManifestBackup+stamp)
	env.UI.Printf("Keeping the previous manifests in %s", dir)
	record, err := controlPlaneRecord(ctx, env)
	if err != nil {
		return err
	}
	if err := backUpRecord(env, dir, record); err != nil {
		return err
	}
	before := map[string][]byte{}
	for _, c := range components {
		before[c.name] = c.before
	}
	if _, listed := before[manifests.EtcdName]; !listed && unlessLocalEtcd(env) == "" {
		if before[manifests.EtcdName], err = host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, manifests.EtcdName)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] == nil {
			continue
		}
		if err := backUp(env, dir, name+".yaml", before[name]); err != nil {
			return err
		}
	}
	if unlessLocalEtcd(env) != "" {
		return nil
	}
	if err := snapshotEtcd(ctx, env, filepath.Join(backupRoot(env), upgrading.EtcdBackup+stamp)); err != nil {
		return errors.WithMessage(err, "a control plane is not upgraded without a snapshot of etcd")
	}
	return pruneSnapshots(env)
}

// controlPlaneRecord is what a rollback needs to know of this upgrade, when the API may be down.
func controlPlaneRecord(ctx context.Context, env *Env) (upgrading.Record, error) {
	r := upgrading.Record{Node: env.Config.Name, To: env.Config.Cluster.KubernetesVersion}
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return r, err
	}
	r.ClusterConfiguration = string(stored)
	r.KubeletConfiguration, err = cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeletConfigMap, "kubelet")
	if err != nil || unlessLocalEtcd(env) != "" {
		return r, err
	}
	// If this host's etcd has lost its data, the upgrade says so elsewhere.
	if data, err := readEtcdData(env); err == nil && data.log != "" {
		r.EtcdCluster = etcdID(data.Cluster)
	}
	return r, nil
}

// etcdID is an ID as etcd and its tools write it.
func etcdID(id uint64) string { return strconv.FormatUint(id, 16) }

// backUpRecord comes first: a backup without it counts as kubeadm's.
func backUpRecord(env *Env, dir string, record upgrading.Record) error {
	data, err := yaml.Marshal(record)
	if err != nil {
		return err
	}
	return backUp(env, dir, upgrading.RecordFile, data)
}

// backUp keeps a file, unless an interrupted run within the same second has kept an older one.
func backUp(env *Env, dir, name string, data []byte) error {
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

// snapshotEtcd writes a snapshot of this node's member, and reads it again to see that it is whole.
func snapshotEtcd(ctx context.Context, env *Env, dir string) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, upgrading.SnapshotFile)
	env.UI.Printf("Writing a snapshot of etcd to %s", path)
	err := env.Host.WriteStream(path, func(w io.Writer) error {
		_, err := env.Etcd.Snapshot(ctx, member.PeerURL, w)
		return err
	})
	if err != nil {
		return err
	}
	info, err := verifiedSnapshot(env, path)
	if errors.Is(err, host.ErrNotInPlan) {
		return nil
	}
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
		if !strings.HasPrefix(e.Name(), upgrading.EtcdBackup) {
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
		whole = whole || e.Name() == upgrading.SnapshotFile
		partial = partial && strings.HasPrefix(e.Name(), "."+upgrading.SnapshotFile+".")
	}
	return whole, partial, nil
}

// backUpKubelet keeps the kubelet's files that are about to be replaced.
func backUpKubelet(env *Env, files []ownership.File) error {
	dir := filepath.Join(backupRoot(env), upgrading.KubeletBackup+env.Host.Now().UTC().Format(upgrading.BackupTime))
	if err := backUpRecord(env, dir, upgrading.Record{Node: env.Config.Name, To: env.Config.Cluster.KubernetesVersion}); err != nil {
		return err
	}
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
