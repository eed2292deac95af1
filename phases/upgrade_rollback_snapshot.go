// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
)

// chooseSnapshot takes the newest snapshot from before the upgrade that fits, or the one that an earlier run has taken.
func (r *Rollback) chooseSnapshot(env *Env, o *restore, minor string) (err error) {
	list := r.Backup.Snapshots
	if r.Progress.Snapshot != "" {
		list = []string{r.Progress.Snapshot}
	}
	if len(list) == 0 {
		message := "there is no snapshot of etcd from before the upgrade in " + backupRoot(env)
		if len(r.Backup.Later) > 0 {
			message += "; these were taken after the API server had been replaced: " + strings.Join(r.Backup.Later, ", ")
		}
		return fault.New(message, "without --restore-etcd, the static Pods go back and etcd's data stays")
	}
	o.snapshot, o.info, err = newestFitting(env, list, o.member.Name, minor)
	return err
}

// newestFitting returns the newest of some snapshots from which a member of etcd of a minor version can be restored. list has
// the newest last.
func newestFitting(env *Env, list []string, member, minor string) (string, etcd.SnapshotInfo, error) {
	var refused []string
	for _, path := range slices.Backward(list) {
		info, err := verifiedSnapshot(env, path)
		if errors.Is(err, host.ErrNotInPlan) { // this run would take it
			return path, info, nil
		}
		if err == nil {
			err = fits(info, member, minor)
		}
		if err == nil {
			return path, info, nil
		}
		refused = append(refused, fmt.Sprintf("%s: %v", path, err))
	}
	return "", etcd.SnapshotInfo{}, errors.New("no snapshot of etcd fits: " + strings.Join(refused, "; "))
}

func verifiedSnapshot(env *Env, path string) (etcd.SnapshotInfo, error) {
	f, err := env.Host.Open(path)
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	defer f.Close()
	return etcd.VerifySnapshot(f)
}

// fits fails if a snapshot is of another member, or of a newer etcd than the one that is put back, which would not start
// with it.
func fits(info etcd.SnapshotInfo, member, minor string) error {
	if !slices.ContainsFunc(info.Members, func(m etcd.Member) bool { return m.Name == member }) {
		return errors.Errorf("it is of the members %s, and this node's member is %s", strings.Join(labelsOf(info.Members), ", "), member)
	}
	if info.Version == "" || minor == "" {
		return nil // before 3.6, or the image has a tag of its own
	}
	v, err := version.ParseGeneric(info.Version)
	if err != nil {
		return errors.Wrap(err, "invalid storage version")
	}
	if version.MustParseGeneric(minor + ".0").LessThan(version.MustParseGeneric(fmt.Sprintf("%d.%d.0", v.Major(), v.Minor()))) {
		return errors.Errorf("it is of etcd %d.%d, and etcd %s does not start with it", v.Major(), v.Minor(), minor)
	}
	return nil
}

func labelsOf(members []etcd.Member) []string {
	var labels []string
	for _, m := range members {
		labels = append(labels, m.Label())
	}
	return labels
}

// checkCluster fails if this host's etcd has joined another cluster since the snapshot was taken.
func (o *restore) checkCluster(env *Env, backup *upgrading.Backup) error {
	record, err := upgrading.RecordBeside(env.Host, o.snapshot)
	if err != nil || record.EtcdCluster == "" {
		return err
	}
	now, err := readEtcdData(env)
	if err != nil || now.log == "" {
		return nil //nolint:nilerr // Rollback.checkEtcdCluster has said so.
	}
	return sameEtcdCluster(now, "the snapshot "+o.snapshot, []string{record.EtcdCluster}, backup.EtcdRecords)
}

// taken is when the snapshot was taken.
func (o *restore) taken() time.Time {
	stamp := strings.TrimPrefix(filepath.Base(filepath.Dir(o.snapshot)), upgrading.EtcdBackup)
	t, _ := time.Parse(upgrading.BackupTime, stamp) // the snapshot was found by it
	return t
}
