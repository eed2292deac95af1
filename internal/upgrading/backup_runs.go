// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
)

// lastUpgrade returns the directories of the last upgrade: the last in a row for the same version, even across several runs, but
// none from before a run that completed it, or from another cluster. kubeadm's backups don't record their version; of these, the
// newest manifests and everything after them count. earlier is the start of the upgrade before it, if only the files that later
// runs found show there were two.
func lastUpgrade(h host.Host, dirs []backupDir, rollback Progress) (last []backupDir, earlier time.Time, err error) {
	r := &runs{h, dirs, rollback, map[int]time.Time{}}
	begin, earlier, err := r.last(len(dirs))
	return dirs[begin:], earlier, err
}

// runs holds the directories of all upgrades.
type runs struct {
	host     host.Host
	dirs     []backupDir
	rollback Progress
	over     map[int]time.Time // the results of endedWith
}

// last returns the beginning of the last upgrade among the directories before end.
func (r *runs) last(end int) (begin int, earlier time.Time, err error) {
	begin, known := end, Record{}
	for i, d := range slices.Backward(r.dirs[:end]) {
		if d.kind == EtcdBackup { // belongs to the manifests before it
			continue
		}
		if begin < end && !d.record.Completed.IsZero() || r.another(known, d) {
			return begin, earlier, nil
		}
		if d.record.To == "" { // kubeadm's, which begins with the manifests; a worker has none
			if begin = i; d.kind == ManifestBackup || !slices.ContainsFunc(r.dirs[:i], func(d backupDir) bool { return d.kind == ManifestBackup }) {
				return begin, earlier, nil
			}
			continue
		}
		if begin < end && d.record.CA == "" {
			if over, err := r.endedWith(i, begin); !over.IsZero() || err != nil {
				return begin, over, err
			}
		}
		begin, known.To = i, d.record.To
		known.CA, known.EtcdCluster = cmp.Or(d.record.CA, known.CA), cmp.Or(d.record.EtcdCluster, known.EtcdCluster)
	}
	return begin, earlier, nil
}

// another reports whether d is from another upgrade, of this cluster or of another one, than the directories after it.
func (r *runs) another(known Record, d backupDir) bool {
	return known.To != "" && d.record.To != known.To || known.otherCluster(d.record, r.rollback.restored(d))
}

// endedWith returns the start of the upgrade that seems to have ended with directory i, before the next; zero if it went on. It
// looks at each only once, as each look includes those before.
func (r *runs) endedWith(i, next int) (began time.Time, err error) {
	if began, found := r.over[i]; found {
		return began, nil
	}
	begin, _, err := r.last(i + 1)
	if err != nil {
		return began, err
	}
	over, err := seemsOver(r.host, r.dirs[begin:i+1], r.dirs[next])
	if over {
		began = r.dirs[begin].made
	}
	r.over[i] = began
	return began, err
}

// restored reports whether a restore may have given this host's etcd a new cluster's data since the run that made d.
func (p Progress) restored(d backupDir) bool {
	return p.OldData != "" && !d.made.Before(p.Began) && (p.Finished.IsZero() || !d.made.After(p.Finished))
}

// seemsOver reports whether an upgrade seems to have ended before a later run to the same version. Earlier releases recorded
// neither the end nor the CA. The upgrade wasn't over if the later run found a component, or a kubelet's file, in its old state.
func seemsOver(h host.Host, upgrade []backupDir, later backupDir) (bool, error) {
	last := upgrade[len(upgrade)-1]
	switch {
	case later.kind == ManifestBackup:
		return replacedAll(h, upgrade, later)
	case last.kind == KubeletBackup:
		same, err := keepsSame(h, last, later)
		return !same && err == nil, err
	}
	return later.record.CA != "", nil // otherwise, one run has made both
}

// replacedAll reports whether a run found the API server and its clients replaced. Many upgrades don't change etcd.
func replacedAll(h host.Host, upgrade []backupDir, later backupDir) (bool, error) {
	found := 0
	for _, component := range []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		name := component + ".yaml"
		data, err := host.ReadIfExists(h, filepath.Join(later.path, name))
		if err != nil {
			return false, err
		}
		if data == nil {
			continue // earlier releases kept only manifests they were about to replace
		}
		image := manifests.ImageOf(data)
		if image == "" {
			return false, nil // nothing says that it was replaced
		}
		before, err := firstImage(h, upgrade, name)
		if replaced := exact(manifests.TagOf(image)) == later.record.To || before != "" && image != before; err != nil || !replaced {
			return false, err
		}
		found++
	}
	return found > 0, nil
}

// firstImage returns the image of the static Pod kept by the first run of an upgrade; empty if none did.
func firstImage(h host.Host, upgrade []backupDir, name string) (image string, err error) {
	for _, d := range upgrade {
		if d.kind == ManifestBackup && image == "" && err == nil {
			image, err = imageIn(h, filepath.Join(d.path, name))
		}
	}
	return image, err
}

// keepsSame reports whether two runs found the same content in a kubelet's file, each before replacing it.
func keepsSame(h host.Host, a, b backupDir) (bool, error) {
	entries, err := h.ReadDir(b.path)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == RecordFile || !e.Type().IsRegular() {
			continue
		}
		one, err := host.ReadIfExists(h, filepath.Join(a.path, e.Name()))
		if err != nil {
			return false, err
		}
		other, err := host.ReadIfExists(h, filepath.Join(b.path, e.Name()))
		if err != nil || one != nil && bytes.Equal(one, other) {
			return err == nil, err
		}
	}
	return false, nil
}

// Record describes the upgrade that made a backup.
type Record struct {
	// Node is the node's name, To the version of the upgrade.
	Node string `json:"node"`
	To   string `json:"to"`
	// CA has the hashes of the cluster's CAs (sha256:HEX of the public key), separated by commas. Earlier releases didn't record it.
	CA string `json:"ca,omitempty"`
	// EtcdCluster is the ID of the etcd cluster in hexadecimal, empty without etcd on this host.
	EtcdCluster string `json:"etcdCluster,omitempty"`
	// ClusterConfiguration and KubeletConfiguration are the configurations the cluster stored before; empty on workers.
	ClusterConfiguration string `json:"clusterConfiguration,omitempty"`
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
	// Written maps the names of replaced files to the hashes of their new content (SHA-256, in hexadecimal).
	Written map[string]string `json:"written,omitempty"`
	// Completed is when the upgrade was completed, in the record of its last directory.
	Completed time.Time `json:"completed,omitzero"`
}

// complete adds a later record's values, as not every phase records all. Files to put back and the cluster stay the first run's.
func (r *Record) complete(later Record) {
	r.Node, r.To = cmp.Or(r.Node, later.Node), cmp.Or(r.To, later.To)
	r.EtcdCluster = cmp.Or(r.EtcdCluster, later.EtcdCluster)
	r.ClusterConfiguration = cmp.Or(r.ClusterConfiguration, later.ClusterConfiguration)
	r.KubeletConfiguration = cmp.Or(r.KubeletConfiguration, later.KubeletConfiguration)
	r.Completed = later.Completed
}

// otherCluster reports whether two records are of different clusters, which may share a CA. A missing value matches any. restored
// means that a restore in between may have made a new etcd cluster.
func (r *Record) otherCluster(other Record, restored bool) bool {
	if !restored && r.EtcdCluster != "" && other.EtcdCluster != "" && r.EtcdCluster != other.EtcdCluster {
		return true
	}
	return r.CA != "" && other.CA != "" && !slices.ContainsFunc(strings.Split(r.CA, ","), func(pin string) bool {
		return slices.Contains(strings.Split(other.CA, ","), pin)
	})
}

func readRecord(h host.Host, dir string) (r Record, err error) {
	_, err = ownership.ReadYAML(h, filepath.Join(dir, RecordFile), &r)
	return r, err
}

// Complete records the end of the upgrade behind b: the next run begins another, even to the same version. It writes nothing
// if that's recorded, or if kubeadm made the backup.
func (b *Backup) Complete(h host.Host) error {
	if !b.Completed.IsZero() {
		return nil
	}
	return b.setCompleted(h, h.Now().UTC().Truncate(time.Second))
}

// Reopen undoes Complete when a rollback begins.
func (b *Backup) Reopen(h host.Host) error {
	if b.Completed.IsZero() {
		return nil
	}
	return b.setCompleted(h, time.Time{})
}

func (b *Backup) setCompleted(h host.Host, at time.Time) error {
	if b.last == "" {
		return nil
	}
	record, err := readRecord(h, b.last)
	if err != nil {
		return err
	}
	record.Completed = at
	if err := ownership.WriteYAML(h, filepath.Join(b.last, RecordFile), record); err != nil {
		return err
	}
	b.Completed = at
	return nil
}
