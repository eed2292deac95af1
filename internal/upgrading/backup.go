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
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// Backup directories have kubeadm's names, with the time (UTC) at which the directory was made. The manifests and the
// snapshot of one run have the same time.
const (
	BackupTime     = "2006-01-02-15-04-05"
	ManifestBackup = "kubeadm-backup-manifests-"
	EtcdBackup     = "kubeadm-backup-etcd-"
	KubeletBackup  = "kubeadm-kubelet-config-"
	SnapshotFile   = "snapshot.db"
	// RecordFile is Slipway's own.
	RecordFile = "upgrade.yaml"
)

// Backup is what this node had before its last upgrade. An upgrade that was interrupted may have made it in several runs.
type Backup struct {
	Record
	// Began is when the first of these runs made its backup. Ended is when the last one kept the static Pods; zero on workers.
	Began, Ended time.Time
	// From is the version of the API server before; empty on workers, and if the name of its image does not contain it.
	From string
	// Manifests are the files with the static Pods, by component; Kubelet are the kubelet's files, by name.
	Manifests, Kubelet map[string]string
	// Snapshots are the files with a snapshot of etcd that a rollback may restore, Later the others; the newest last.
	//
	// Each run takes a snapshot, also when it continues an upgrade that was interrupted or has failed. A newer API server may
	// by then have written what the one before cannot read. So only those snapshots count as from before the upgrade that a run
	// took while the API server's manifest still had the image of before: a run keeps the manifests that it finds, then takes
	// its snapshot, and only then replaces a manifest, the API server's first. A run that kept no manifest of the API server,
	// as earlier releases did, had found it replaced.
	Snapshots, Later []string

	// EtcdClusters are the etcd clusters that its runs have recorded: a restore makes a new one. EtcdRecords are the files that say so.
	EtcdClusters, EtcdRecords []string
	// Earlier is when an upgrade to the same version began that an earlier release made, and that doesn't count: it seems to have
	// come to its end, which that release didn't record. It's zero if there was none.
	Earlier time.Time

	// last is the last directory with a record, in which the end of the upgrade is recorded. written are the records of what its
	// runs wrote.
	last    string
	written []map[string]string
}

// backupDir is a directory of a backup.
type backupDir struct {
	path, kind string
	made       time.Time
	record     Record // empty for one that kubeadm made
}

// LastBackup finds the backup of this node's last upgrade below root. If there was none since the last rollback, it is the
// backup of the upgrade that was rolled back. It returns nil if there is no backup.
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
	return b, b.readVersion(h)
}

// since returns the directories that were made after a rollback; if there are none, those made since the start of the upgrade
// that it rolled back.
func since(dirs []backupDir, rollback Progress) []backupDir {
	after := slices.IndexFunc(dirs, func(d backupDir) bool { return d.made.After(rollback.Finished) })
	if rollback.Finished.IsZero() || after < 0 {
		after = slices.IndexFunc(dirs, func(d backupDir) bool { return !d.made.Before(rollback.Began) })
	}
	return dirs[max(after, 0):]
}

// backupDirs lists the backup directories, the oldest first. A directory without a time in its name is not a backup.
func backupDirs(h host.Host, root string) ([]backupDir, error) {
	entries, err := h.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []backupDir
	for _, e := range entries {
		for _, kind := range []string{ManifestBackup, EtcdBackup, KubeletBackup} {
			stamp, ours := strings.CutPrefix(e.Name(), kind)
			made, err := time.Parse(BackupTime, stamp)
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

// add adds what is in a directory. If several runs kept a file, the first one found what was there before the upgrade.
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
		case e.Name() == RecordFile || strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular(): // a killed run was about to write the hidden ones
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

// addEtcdCluster adds the etcd cluster that a directory has recorded.
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

// addSnapshot adds a snapshot. The manifests that its run found have been added.
func (b *Backup) addSnapshot(h host.Host, path string) error {
	found, err := imageIn(h, filepath.Join(ManifestsBeside(path), manifests.APIServerName+".yaml"))
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

// ManifestsBeside is the directory with the manifests that were there when a snapshot was taken.
func ManifestsBeside(snapshot string) string {
	root, dir := filepath.Split(filepath.Dir(snapshot))
	return filepath.Join(root, ManifestBackup+strings.TrimPrefix(dir, EtcdBackup))
}

// RecordBeside is the record of the run that took a snapshot; empty if it is missing.
func RecordBeside(h host.Host, snapshot string) (Record, error) {
	return readRecord(h, ManifestsBeside(snapshot))
}

// imageIn returns the image of the static Pod in a file; empty if there is no such file, or if it is damaged.
func imageIn(h host.Host, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := host.ReadIfExists(h, path)
	if err != nil {
		return "", err
	}
	image, _ := imageOf(data)
	return image, nil
}

// Wrote reports whether the upgrade wrote these contents of a file with that name, and whether it recorded that it wrote one.
func (b *Backup) Wrote(name string, data []byte) (same, recorded bool) {
	for _, files := range b.written {
		hash, found := files[name]
		same, recorded = same || found && hash == HashOf(data), recorded || found
	}
	return same, recorded
}

func (b *Backup) readVersion(h host.Host) error {
	path := b.Manifests[manifests.APIServerName]
	if path == "" {
		return nil
	}
	data, err := h.ReadFile(path)
	if err == nil {
		b.From, err = VersionOf(data)
	}
	return errors.WithMessage(err, path)
}

// VersionOf returns the version of Kubernetes in the image name of a static Pod, with a leading v. It is empty if the name
// does not contain one, such as one with a digest only. An error means that the manifest is damaged.
func VersionOf(manifest []byte) (string, error) {
	image, err := imageOf(manifest)
	if err != nil {
		return "", err
	}
	return exact(TagOf(image)), nil
}

func imageOf(manifest []byte) (string, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return "", errors.WithStack(err)
	}
	if len(pod.Spec.Containers) == 0 {
		return "", errors.New("not a Pod with a container")
	}
	return pod.Spec.Containers[0].Image, nil
}
