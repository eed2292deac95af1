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

// The names of backups are kubeadm's, with the time (UTC) at which their directory was made. The manifests and the snapshot
// of one run have the same time.
const (
	BackupTime     = "2006-01-02-15-04-05"
	ManifestBackup = "kubeadm-backup-manifests-"
	EtcdBackup     = "kubeadm-backup-etcd-"
	KubeletBackup  = "kubeadm-kubelet-config-"
	SnapshotFile   = "snapshot.db"
	// RecordFile is Slipway's own.
	RecordFile = "upgrade.yaml"
)

// Record is what a backup says of the upgrade that made it.
type Record struct {
	// Node is the node's name, To the version that it was upgraded to.
	Node string `json:"node"`
	To   string `json:"to"`
	// EtcdCluster is the ID of the etcd cluster in hexadecimal, empty without etcd on this host.
	EtcdCluster string `json:"etcdCluster,omitempty"`
	// ClusterConfiguration and KubeletConfiguration are what the cluster stored before; empty on workers.
	ClusterConfiguration string `json:"clusterConfiguration,omitempty"`
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
}

// Backup is what this node had before its last upgrade. An upgrade that was interrupted may have made it in several runs.
type Backup struct {
	Record
	// Began is when the first of these runs made its backup, Ended when the last one did.
	Began, Ended time.Time
	// From is the version of the API server before; empty on workers.
	From string
	// Manifests are the files with the static Pods, by component; Kubelet are the kubelet's files, by name.
	Manifests, Kubelet map[string]string
	// Snapshots are the files with a snapshot of etcd, the newest last.
	Snapshots []string
}

// backupDir is a directory of a backup.
type backupDir struct {
	path, kind string
	made       time.Time
	record     Record // empty for one that kubeadm made
}

// LastBackup finds the backup of this node's last upgrade below root. If there was none since the last rollback, that is the
// upgrade which it was of. It returns nil if there is no backup.
func LastBackup(h host.Host, root string, rollback Progress) (*Backup, error) {
	dirs, err := backupDirs(h, root)
	if err != nil {
		return nil, err
	}
	dirs = lastUpgrade(since(dirs, rollback))
	if len(dirs) == 0 {
		return nil, nil
	}
	b := &Backup{Record: dirs[0].record, Began: dirs[0].made, Ended: dirs[len(dirs)-1].made, Manifests: map[string]string{}, Kubelet: map[string]string{}}
	for _, d := range dirs {
		if err := b.add(h, d); err != nil {
			return nil, err
		}
	}
	return b, b.readVersion(h)
}

// since returns the directories that were made after a rollback, or else those from the beginning of its upgrade on.
func since(dirs []backupDir, rollback Progress) []backupDir {
	after := slices.IndexFunc(dirs, func(d backupDir) bool { return d.made.After(rollback.Finished) })
	if rollback.Finished.IsZero() || after < 0 {
		after = slices.IndexFunc(dirs, func(d backupDir) bool { return !d.made.Before(rollback.Began) })
	}
	return dirs[max(after, 0):]
}

// backupDirs lists the directories of backups, the oldest first. What has no time in its name is not a backup.
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

// order is that in which a run makes its backups.
func order(kind string) int {
	return slices.Index([]string{ManifestBackup, EtcdBackup, KubeletBackup}, kind)
}

func readRecord(h host.Host, dir string) (r Record, err error) {
	path := filepath.Join(dir, RecordFile)
	data, err := host.ReadIfExists(h, path)
	if err != nil || data == nil {
		return r, err
	}
	return r, errors.Wrap(yaml.UnmarshalStrict(data, &r), path)
}

// lastUpgrade returns the directories of the last upgrade: those in a row to the same version. Nothing says to which
// version kubeadm's backups belong, so there the newest manifests and what follows them count.
func lastUpgrade(dirs []backupDir) []backupDir {
	begin, to := len(dirs), ""
	for i, d := range slices.Backward(dirs) {
		switch {
		case d.kind == EtcdBackup: // goes with the manifests before it
		case d.record.To == "" && to == "":
			begin = i
			if d.kind == ManifestBackup {
				return dirs[i:]
			}
		case d.record.To == "" || to != "" && d.record.To != to:
			return dirs[begin:]
		default:
			begin, to = i, d.record.To
		}
	}
	return dirs[begin:]
}

// add adds what is in a directory. What an earlier run replaced was there before.
func (b *Backup) add(h host.Host, d backupDir) error {
	entries, err := h.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		component, manifest := strings.CutSuffix(e.Name(), ".yaml")
		switch {
		case e.Name() == RecordFile || !e.Type().IsRegular():
		case d.kind == EtcdBackup && e.Name() == SnapshotFile:
			b.Snapshots = append(b.Snapshots, path)
		case d.kind == ManifestBackup && manifest:
			b.Manifests[component] = cmp.Or(b.Manifests[component], path)
		case d.kind == KubeletBackup:
			b.Kubelet[e.Name()] = cmp.Or(b.Kubelet[e.Name()], path)
		}
	}
	return nil
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

// VersionOf returns the version of Kubernetes that the image of a static Pod has, with a leading v.
func VersionOf(manifest []byte) (string, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return "", errors.WithStack(err)
	}
	if len(pod.Spec.Containers) == 0 {
		return "", errors.New("it is not a Pod with a container")
	}
	image, _, _ := strings.Cut(pod.Spec.Containers[0].Image, "@")
	if v := exact(TagOf(image)); v != "" {
		return v, nil
	}
	return "", errors.Errorf("the version of image %q is unknown", image)
}
