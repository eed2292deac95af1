// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// Backup directories have kubeadm's names, with their creation time (host.BackupTime), the same for a run's manifests and snapshot. If the
// clock was ahead in an earlier run, a later one's time is just after that run's.
const (
	ManifestBackup = "kubeadm-backup-manifests-"
	EtcdBackup     = "kubeadm-backup-etcd-"
	KubeletBackup  = "kubeadm-kubelet-config-"
	SnapshotFile   = "snapshot.db"
	// RecordFile is Slipway's own.
	RecordFile = "upgrade.yaml"
)

// Backup is the state of this node before its last upgrade. If that was interrupted, several runs may have made the backup.
type Backup struct {
	Record
	// Began is when the first of these runs made its backup. Ended is when the last run kept the static Pods; zero on workers.
	Began, Ended time.Time
	From         string // the API server's version before; empty on workers, and if its image's name has no version
	// Manifests maps components to their static Pods' files, Kubelet the names of the kubelet's files to their paths.
	Manifests, Kubelet map[string]string
	// Snapshots lists the etcd snapshots that a rollback may restore, Later the others; the newest last.
	//
	// Each run takes a snapshot, even if it continues an interrupted or failed upgrade. By then, a newer API server may have written
	// data that the previous version can't read. So a snapshot only counts as from before the upgrade if the API server's manifest
	// still had the old image: a run keeps the manifests it finds, then takes its snapshot, and only then replaces manifests, the
	// API server's first. A run that kept no manifest of the API server, as in earlier releases, had found it replaced.
	Snapshots, Later []string

	// EtcdClusters lists the etcd clusters its runs recorded: a restore begins a cluster. EtcdRecords lists the records' files.
	EtcdClusters, EtcdRecords []string
	// Earlier is the start of an earlier release's upgrade to the same version, which seems to have ended unrecorded, so it doesn't
	// count as part of this upgrade; zero if there was none.
	Earlier time.Time

	// last is the last directory with a record, where the end of the upgrade goes. written holds the hashes of each run's files.
	last    string
	written []map[string]string
	// damaged is an error if the kept static Pod of the API server can't be read: a rollback can't put it back, but upgrades go on.
	damaged error
}

type backupDir struct {
	path, kind string
	made       time.Time
	record     Record // empty if kubeadm made it
}

// LastBackup finds the backup of this node's last upgrade below root or, if there was none since the last rollback, of the upgrade
// rolled back; nil if there's none.
func LastBackup(h host.Host, root string, rollback Progress) (*Backup, error) {
	dirs, err := backupDirs(h, root)
	if err != nil {
		return nil, err
	}
	dirs, earlier, err := lastUpgrade(h, since(dirs, rollback), rollback)
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	b := &Backup{Record: Record{CA: dirs[0].record.CA}, Began: dirs[0].made, Earlier: earlier, Manifests: map[string]string{}, Kubelet: map[string]string{}}
	for _, d := range dirs {
		if err := b.add(h, d); err != nil {
			return nil, err
		}
	}
	b.readVersion(h)
	return b, nil
}

// LastBackupTime returns the time of the newest backup below root; zero if there's none. It's in the future if a run's clock was ahead.
func LastBackupTime(h host.Host, root string) (time.Time, error) {
	dirs, err := backupDirs(h, root)
	if err != nil || len(dirs) == 0 {
		return time.Time{}, err
	}
	return dirs[len(dirs)-1].made, nil
}

// since returns the directories made after a rollback or, if there are none, since the start of the upgrade it rolled back.
func since(dirs []backupDir, rollback Progress) []backupDir {
	after := slices.IndexFunc(dirs, func(d backupDir) bool { return d.made.After(rollback.Finished) })
	if rollback.Finished.IsZero() || after < 0 {
		after = slices.IndexFunc(dirs, func(d backupDir) bool { return !d.made.Before(rollback.Began) })
	}
	return dirs[max(after, 0):]
}

// backupDirs lists the backup directories, the oldest first. A directory without a time in its name isn't a backup.
func backupDirs(h host.Host, root string) ([]backupDir, error) {
	entries, err := h.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []backupDir
	for _, e := range entries {
		for _, kind := range []string{ManifestBackup, EtcdBackup, KubeletBackup} {
			stamp, ours := strings.CutPrefix(e.Name(), kind)
			made, err := time.Parse(host.BackupTime, stamp)
			if !ours || err != nil || !e.IsDir() {
				continue
			}
			d := backupDir{path: filepath.Join(root, e.Name()), kind: kind, made: made}
			if d.record, err = readRecord(h, d.path); err != nil {
				return nil, err
			}
			dirs = append(dirs, d)
		}
	}
	slices.SortStableFunc(dirs, func(a, b backupDir) int { return cmp.Or(a.made.Compare(b.made), order(a.kind)-order(b.kind)) })
	return dirs, nil
}

// order is the order in which a run makes its backups.
func order(kind string) int {
	return slices.Index([]string{ManifestBackup, EtcdBackup, KubeletBackup}, kind)
}

// add adds the contents of a directory. If several runs kept a file, the first one's copy is the state before the upgrade.
func (b *Backup) add(h host.Host, d backupDir) error {
	if d.kind != EtcdBackup {
		b.complete(d.record)
	}
	if d.record.To != "" {
		b.last = d.path
	}
	b.written = append(b.written, d.record.Written)
	b.addEtcdCluster(d)
	if d.kind == ManifestBackup {
		b.Ended = d.made
	}
	entries, err := h.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		component, manifest := strings.CutSuffix(e.Name(), ".yaml")
		switch {
		case e.Name() == RecordFile || strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular(): // a killed run left hidden files
		case d.kind == EtcdBackup && e.Name() == SnapshotFile:
			err = errors.WithMessage(b.addSnapshot(h, path), path)
		case d.kind == ManifestBackup && manifest:
			b.Manifests[component] = cmp.Or(b.Manifests[component], path)
		case d.kind == KubeletBackup:
			b.Kubelet[e.Name()] = cmp.Or(b.Kubelet[e.Name()], path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Backup) addEtcdCluster(d backupDir) {
	id := d.record.EtcdCluster
	if id == "" {
		return
	}
	b.EtcdRecords = append(b.EtcdRecords, filepath.Join(d.path, RecordFile))
	if !slices.Contains(b.EtcdClusters, id) {
		b.EtcdClusters = append(b.EtcdClusters, id)
	}
}

// addSnapshot adds a snapshot, after the manifests its run found.
func (b *Backup) addSnapshot(h host.Host, path string) error {
	found, err := imageIn(h, filepath.Join(manifestsBeside(path), manifests.APIServerName+".yaml"))
	if err != nil {
		return err
	}
	before, err := imageIn(h, b.Manifests[manifests.APIServerName])
	if err != nil {
		return err
	}
	if found == before {
		b.Snapshots = append(b.Snapshots, path)
	} else {
		b.Later = append(b.Later, path)
	}
	return nil
}

// manifestsBeside is the directory with the manifests from the time of a snapshot.
func manifestsBeside(snapshot string) string {
	root, dir := filepath.Split(filepath.Dir(snapshot))
	return filepath.Join(root, ManifestBackup+strings.TrimPrefix(dir, EtcdBackup))
}

// RecordBeside returns the record of the run that took a snapshot; empty if it's missing.
func RecordBeside(h host.Host, snapshot string) (Record, error) {
	return readRecord(h, manifestsBeside(snapshot))
}

// imageIn returns the image of the static Pod in a file; empty if the file doesn't exist or is damaged.
func imageIn(h host.Host, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := host.ReadIfExists(h, path)
	if err != nil {
		return "", err
	}
	return manifests.ImageOf(data), nil
}

// Wrote reports whether the upgrade wrote this content to a file with that name, and whether it recorded such a write at all.
func (b *Backup) Wrote(name string, data []byte) (same, recorded bool) {
	for _, files := range b.written {
		hash, found := files[name]
		same, recorded = same || found && hash == host.HashOf(data), recorded || found
	}
	return same, recorded
}

func (b *Backup) readVersion(h host.Host) {
	path := b.Manifests[manifests.APIServerName]
	if path == "" {
		return
	}
	data, err := h.ReadFile(path)
	if err == nil {
		b.From, err = VersionOf(data)
	}
	b.damaged = errors.WithMessage(err, path)
}

// VersionOf returns the Kubernetes version in a static Pod's image, with a leading v; empty if its name has none, such as with
// only a digest. An error means the manifest is damaged.
func VersionOf(manifest []byte) (string, error) {
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return "", err
	}
	return exact(manifests.TagOf(pod.Spec.Containers[0].Image)), nil
}
