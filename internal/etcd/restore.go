// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// RevisionBump is how many revisions a restore skips at least. Clients remember the revision of the data they've read: if a client asked
// for changes since a revision in the future of the restored database, it would wait for that revision, and miss everything
// before it. So the restored revision has to be higher than any ever given out, and all up to it count as compacted: watches from
// earlier revisions fail, and clients such as informers list again. A billion is etcd's recommendation, enough for a week of 1500
// writes per second since the snapshot: https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump. A revision has
// 63 bits, so this can be done nine billion times. Restore also goes by the time, because the snapshot may be older than the revisions
// of an earlier restore.
const RevisionBump = 1_000_000_000

// storedMember is a member in the format of etcd's database, raft's log, and its answers to peers.
type storedMember struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	IsLearner  bool     `json:"isLearner,omitempty"`
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

func (m storedMember) member() Member {
	found := Member{ID: m.ID, Name: m.Name, ClientURLs: m.ClientURLs, Learner: m.IsLearner}
	if len(m.PeerURLs) > 0 {
		found.PeerURL, found.MorePeerURLs = m.PeerURLs[0], append([]string(nil), m.PeerURLs[1:]...)
	}
	return found
}

// firstIndex and firstTerm belong to the only entry in a restored log.
const firstIndex, firstTerm = 1, 1

// Restore makes the data of a new cluster from a snapshot. The cluster's only member has this name and peer URL, and ignores the
// flags --initial-*. dir is empty, and will become the directory `member` in etcd's data directory. IDs are random, so that
// running members of the earlier cluster don't take the new cluster for theirs: they have to be removed and join again.
//
// Keys, leases, users and alarms come from the snapshot; alarms become the new member's, except CORRUPT, which ends. The new revision
// is RevisionBump above the newest in the snapshot, or above atLeast if that's higher: the last revision known from elsewhere, or 0.
// It's at least the present time in microseconds, and etcd can't write a million times a second. So even if the same or an older
// snapshot is restored again, and nobody knows the last revision, no revision is given out twice, as long as clocks are right and
// RevisionBump microseconds (17 minutes) pass between two restores. All revisions up to the new revision are compacted. Copying ends
// with ctx.
// The etcd version that wrote the snapshot can start with the data, and so can the next minor.
func Restore(ctx context.Context, snapshot *os.File, dir, name, peerURL string, atLeast int64, now time.Time) (Data, error) {
	ids, m := newMember(name, peerURL)
	err := restoreDatabase(dir, func(f *os.File) error { return copySnapshot(ctx, f, snapshot) },
		func(tx *bbolt.Tx) error { return rewrite(tx, m, max(atLeast, now.UnixMicro()-RevisionBump)) })
	if err == nil {
		err = restoreLog(dir, ids, m)
	}
	return ids, errors.WithMessagef(err, "restore the snapshot %s", snapshot.Name())
}

// newMember makes a member with random IDs.
func newMember(name, peerURL string) (Data, storedMember) {
	var random [16]byte
	_, _ = rand.Read(random[:])                     // never fails
	random[0], random[8] = random[0]|1, random[8]|1 // 0 means none
	ids := Data{Member: binary.BigEndian.Uint64(random[:]), Cluster: binary.BigEndian.Uint64(random[8:])}
	return ids, storedMember{ID: ids.Member, PeerURLs: []string{peerURL}, Name: name}
}

// restoreDatabase makes a new member's database in dir: the copy of another, and then a change.
func restoreDatabase(dir string, fill func(*os.File) error, change func(*bbolt.Tx) error) error {
	dir = filepath.Join(dir, "snap")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "db"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(f); err != nil {
		return err
	}
	// The same options as etcd's.
	db, err := openDatabase(f, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(change)
	if failure := db.Close(); err == nil {
		err = failure
	}
	return err
}

// copySnapshot copies a snapshot's database to f.
func copySnapshot(ctx context.Context, f, snapshot *os.File) error {
	sum := newChecksum()
	if _, err := io.Copy(Pace(0).Writer(ctx, io.MultiWriter(sum, f)), io.NewSectionReader(snapshot, 0, math.MaxInt64)); err != nil {
		return err
	}
	if _, err := sum.info(); err != nil {
		return err
	}
	return f.Truncate(sum.size - int64(len(sum.end)))
}

// rewrite turns the database into that of a new cluster with one member.
func rewrite(tx *bbolt.Tx, m storedMember, atLeast int64) (err error) {
	defer recoverDamage(&err)()
	if err := replaceMembers(tx, m); err != nil {
		return err
	}
	return rewriteMeta(tx, atLeast)
}

// replaceMembers makes m the only member, with a vote.
func replaceMembers(tx *bbolt.Tx, m storedMember) error {
	for _, name := range [][]byte{membersBucket, removedBucket} {
		if err := tx.DeleteBucket(name); err != nil {
			return errors.Wrapf(err, "bucket %s", name)
		}
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	stored, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := tx.Bucket(membersBucket).Put([]byte(strconv.FormatUint(m.ID, 16)), stored); err != nil {
		return err
	}
	if err := replaceAlarms(tx, m); err != nil {
		return err
	}
	voters, err := json.Marshal(map[string]any{"voters": []uint64{m.ID}, "auto_leave": false})
	if err != nil {
		return err
	}
	return tx.Bucket(metaBucket).Put(confStateKey, voters)
}

// replaceAlarms makes all alarms m's: etcd obeys those of former members, too, and nobody else could see why. CORRUPT ends: it says
// that members' keys differ, and m is the only member. With it, etcd would refuse all writes, and never become ready.
func replaceAlarms(tx *bbolt.Tx, m storedMember) error {
	bucket := tx.Bucket(alarmBucket)
	if bucket == nil {
		return nil
	}
	kinds := map[pb.AlarmType]bool{}
	err := bucket.ForEach(func(key, _ []byte) error {
		var alarm pb.AlarmMember
		err := proto.Unmarshal(key, &alarm)
		if alarm.GetAlarm() != pb.AlarmType_CORRUPT {
			kinds[alarm.GetAlarm()] = true
		}
		return errors.Wrapf(err, "bucket %s", alarmBucket)
	})
	if err == nil {
		err = tx.DeleteBucket(alarmBucket)
	}
	if err == nil {
		bucket, err = tx.CreateBucket(alarmBucket)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		var key []byte
		if err == nil {
			key, err = proto.Marshal(&pb.AlarmMember{MemberID: m.ID, Alarm: kind})
		}
		if err == nil {
			err = bucket.Put(key, nil)
		}
	}
	return err
}

// rewriteMeta bumps the revision, and sets the last entry in the database.
func rewriteMeta(tx *bbolt.Tx, atLeast int64) error {
	latest, err := latestRevision(tx)
	if err != nil {
		return err
	}
	if latest = max(latest, atLeast); latest > math.MaxInt64-RevisionBump {
		return errors.Errorf("its revision %d is too high", latest)
	}
	bumped := revisionKey(latest + RevisionBump)
	meta := tx.Bucket(metaBucket)
	for _, entry := range []struct {
		bucket     *bbolt.Bucket
		key, value []byte
	}{
		{tx.Bucket(keyBucket), bumped, nil},
		{meta, scheduledCompactKey, bumped},
		{meta, consistentIndexKey, binary.BigEndian.AppendUint64(nil, firstIndex)},
		{meta, termKey, binary.BigEndian.AppendUint64(nil, firstTerm)},
	} {
		if err := entry.bucket.Put(entry.key, entry.value); err != nil {
			return err
		}
	}
	return nil
}

// latestRevision returns the revision of the last record, or of the last compaction, which may have left no record.
func latestRevision(tx *bbolt.Tx) (latest int64, err error) {
	meta := tx.Bucket(metaBucket)
	last, _ := tx.Bucket(keyBucket).Cursor().Last()
	for _, key := range [][]byte{last, meta.Get(scheduledCompactKey), meta.Get(finishedCompactKey)} {
		if key == nil {
			continue
		}
		main, _, err := parseRevision(key)
		if err != nil {
			return 0, err
		}
		latest = max(latest, main)
	}
	return latest, nil
}

// restoreLog makes the log of a cluster with one member.
func restoreLog(dir string, ids Data, m storedMember) error {
	member, err := json.Marshal(m)
	if err != nil {
		return err
	}
	change, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &ids.Member, Context: member})
	if err != nil {
		return err
	}
	index, term := uint64(firstIndex), uint64(firstTerm)
	return raftLog{ids, m, &raftpb.HardState{Term: &term, Vote: &ids.Member, Commit: &index},
		[]*raftpb.Entry{{Type: raftpb.EntryConfChange.Enum(), Term: &term, Index: &index, Data: change}}, index, term}.write(dir)
}
