// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/test/fact"
)

func restored(t *testing.T, data []byte, dir string, atLeast int64, now time.Time) (Data, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Restore(t.Context(), f, dir, "cp-1", peer("cp-1"), atLeast, now)
}

// TestRestore: the new member is the only one, has its own log, and its revisions are higher than all before. test/etcdutl
// compares the rest with the results of etcd's own program.
func TestRestore(t *testing.T) {
	const last = 6 // of the snapshot
	seen := map[uint64]bool{}
	date := time.Date(2026, time.November, 27, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		atLeast int64
		now     time.Time
		want    int64
	}{
		{0, time.Time{}, last + RevisionBump},
		{5, time.Time{}, last + RevisionBump},
		{5_000_000_000, time.Time{}, 5_000_000_000 + RevisionBump},
		{5_000_000_000, date, date.UnixMicro()},
		{0, date, date.UnixMicro()},
		{0, date.Add(time.Second), date.UnixMicro() + 1_000_000}, // the same snapshot again
		{date.UnixMicro() + 100, date, date.UnixMicro() + 100 + RevisionBump},
	} {
		want, dir := c.want, t.TempDir()
		ids, err := restored(t, read(t, real36), dir, c.atLeast, c.now)
		if err != nil || ids.Member == 0 || ids.Cluster == 0 || seen[ids.Member] || seen[ids.Cluster] {
			t.Fatalf("%+v, %v", ids, err)
		}
		seen[ids.Member], seen[ids.Cluster] = true, true
		head, err := os.ReadFile(filepath.Join(dir, "wal", "0000000000000000-0000000000000000.wal"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadData(head[:DataHead]); err != nil || got != ids {
			t.Errorf("the log is of %+v (%v), want %+v", got, err, ids)
		}
		db, err := bbolt.Open(filepath.Join(dir, "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		_ = db.View(func(tx *bbolt.Tx) error {
			var m storedMember
			_, value := tx.Bucket(membersBucket).Cursor().First()
			if err := json.Unmarshal(value, &m); err != nil || tx.Bucket(membersBucket).Stats().KeyN != 1 || m.ID != ids.Member || m.Name != "cp-1" || m.PeerURLs[0] != peer("cp-1") {
				t.Errorf("members: %+v, %v", m, err)
			}
			if got, err := latestRevision(tx); got != want || err != nil {
				t.Errorf("at revision %d (%v), want %d", got, err, want)
			}
			if compacted := tx.Bucket(metaBucket).Get(scheduledCompactKey); !bytes.Equal(compacted, revisionKey(want)) {
				t.Errorf("compacted to %x", compacted)
			}
			return nil
		})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoreAlarms: former members' alarms become the new member's, since etcd obeys them. It can't differ from itself, so CORRUPT
// ends.
func TestRestoreAlarms(t *testing.T) {
	former := func(id uint64, kind pb.AlarmType) []byte {
		key, err := proto.Marshal(&pb.AlarmMember{MemberID: id, Alarm: kind})
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	data := edited(t, func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(alarmBucket)
		return errors.Join(err, bucket.Put(former(7, pb.AlarmType_NOSPACE), nil), bucket.Put(former(8, pb.AlarmType_NOSPACE), nil), bucket.Put(former(8, pb.AlarmType_CORRUPT), nil))
	})
	dir := t.TempDir()
	ids, err := restored(t, data, dir, 0, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got [][]byte
	_ = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(alarmBucket).ForEach(func(key, _ []byte) error { got = append(got, bytes.Clone(key)); return nil })
	})
	if len(got) != 1 || !bytes.Equal(got[0], former(ids.Member, pb.AlarmType_NOSPACE)) {
		t.Errorf("alarms %x, and the member is %x", got, ids.Member)
	}
}

// TestRestoreIsPrivate: the data holds all the cluster's secrets.
func TestRestoreIsPrivate(t *testing.T) {
	dir := t.TempDir()
	if _, err := restored(t, read(t, real37), dir, 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir || filepath.Ext(path) == ".snap" { // this file has only the members
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRestoreAfterCompaction: a compaction may have removed the newest revision's record.
func TestRestoreAfterCompaction(t *testing.T) {
	dir := t.TempDir()
	data := edited(t, func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(finishedCompactKey, revisionKey(700)) })
	if _, err := restored(t, data, dir, 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_ = db.View(func(tx *bbolt.Tx) error {
		if got, err := latestRevision(tx); got != 700+RevisionBump || err != nil {
			t.Errorf("at revision %d (%v)", got, err)
		}
		return nil
	})
}

func TestRestoreFails(t *testing.T) {
	whole := read(t, real36)
	flipped := bytes.Clone(whole)
	flipped[9000] ^= 1
	taken := t.TempDir()
	if err := os.Mkdir(filepath.Join(taken, "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data []byte
		dir  string
		says string
	}{
		"damaged":           {flipped, t.TempDir(), "damaged"},
		"cut":               {whole[:20001], t.TempDir(), "a checksum"},
		"another database":  {edited(t, func(tx *bbolt.Tx) error { return tx.DeleteBucket(removedBucket) }), t.TempDir(), "bucket members_removed: bucket not"},
		"a high revision":   {edited(t, func(tx *bbolt.Tx) error { return tx.Bucket(keyBucket).Put(revisionKey(1<<63-5), nil) }), t.TempDir(), "revision 9223372036854775803"},
		"a strange key":     {edited(t, func(tx *bbolt.Tx) error { return tx.Bucket(keyBucket).Put([]byte("zzz"), nil) }), t.TempDir(), "a revision"},
		"not empty":         {whole, taken, "file exists"},
		"no directory":      {whole, filepath.Join(taken, "none"), taken + "/none"},
		"a log that exists": {whole, withLog(t), "already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := restored(t, test.data, test.dir, 0, time.Time{})
			fact.Error(t, err, "restore", "snapshot /", test.says)
		})
	}
}

func withLog(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "wal"), 0o700), os.WriteFile(filepath.Join(dir, "wal", "0000000000000000-0000000000000000.wal"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCopiesEnd: an operator who ends a command needn't wait for the copy of a large database.
func TestCopiesEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := os.Open("testdata/snapshot-3.6.db")
	fact.Error(t, err)
	defer f.Close()
	if _, err := Restore(ctx, f, t.TempDir(), "cp-1", peer("cp-1"), 0, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a snapshot was restored: %v", err)
	}
	s := &Survivor{Log: &Log{}, database: f}
	if _, err := s.WriteRenewed(ctx, t.TempDir(), "cp-1", peer("cp-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("data was renewed: %v", err)
	}
	if err := s.WriteReplay(ctx, t.TempDir(), "cp-1", peer("cp-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("data was copied for a replay: %v", err)
	}
	if _, err := Pace(0).VerifySnapshot(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("a snapshot was verified: %v", err)
	}
}
