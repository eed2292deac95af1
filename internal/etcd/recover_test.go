// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/test/fact"
)

// entry is an entry of a log: a change of a key, unless it's empty, or about members.
func entry(t *testing.T, index, term uint64, request *pb.InternalRaftRequest) *raftpb.Entry {
	t.Helper()
	e := &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Index: &index, Term: &term}
	if request != nil {
		data, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		e.Data = data
	}
	return e
}

func put(t *testing.T, index, term uint64) *raftpb.Entry {
	t.Helper()
	return entry(t, index, term, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: index}, Put: &pb.PutRequest{Key: fmt.Append(nil, index, term), Value: bytes.Repeat([]byte("x"), 700)}})
}

func puts(t *testing.T, term, first, last uint64) (entries []*raftpb.Entry) {
	t.Helper()
	for i := first; i <= last; i++ {
		entries = append(entries, put(t, i, term))
	}
	return entries
}

// writtenLog writes a log, and returns its directory.
func writtenLog(t *testing.T, write func(w *wal.WAL) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wal")
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(0xa)), ClusterID: new(uint64(0xc))})
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(zap.NewNop(), dir, metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openLog(t *testing.T, dir string) (files []*os.File) {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func state(term, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Commit: &commit}
}

// smallLogs makes log files small.
func smallLogs(t *testing.T) {
	t.Helper()
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 8 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
}

// TestReadLog: of what a member has written, only the end that no leader has replaced since counts.
func TestReadLog(t *testing.T) {
	smallLogs(t)
	for name, test := range map[string]struct {
		write            func(w *wal.WAL) error
		index, term      uint64
		committed        uint64
		uncertain, files int
	}{
		"all is committed":       {func(w *wal.WAL) error { return w.Save(state(2, 3), puts(t, 2, 1, 3)) }, 3, 2, 3, 0, 1},
		"two changes may not be": {func(w *wal.WAL) error { return w.Save(state(2, 3), puts(t, 2, 1, 5)) }, 5, 2, 3, 2, 1},
		"a new leader had others": {func(w *wal.WAL) error {
			return errors.Join(w.Save(state(2, 2), puts(t, 2, 1, 6)), w.Save(state(3, 2), puts(t, 3, 4, 4)))
		}, 4, 3, 2, 2, 1},
		"members are no changes": {func(w *wal.WAL) error {
			return w.Save(state(2, 1), []*raftpb.Entry{put(t, 1, 2), entry(t, 2, 2, nil),
				{Type: raftpb.EntryConfChange.Enum(), Index: new(uint64(3)), Term: new(uint64(2)), Data: []byte("x")},
				entry(t, 4, 2, &pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 1}})})
		}, 4, 2, 1, 0, 1},
		"several files": {func(w *wal.WAL) error {
			return errors.Join(w.Save(state(2, 9), puts(t, 2, 1, 20)), w.Save(state(2, 19), puts(t, 2, 21, 40)), w.Save(state(2, 30), puts(t, 2, 41, 41)))
		}, 41, 2, 30, 11, 2},
		"the leader sent the database": {func(w *wal.WAL) error {
			return errors.Join(w.Save(state(2, 2), puts(t, 2, 1, 2)),
				w.SaveSnapshot(&walpb.Snapshot{Index: new(uint64(50)), Term: new(uint64(4)), ConfState: &raftpb.ConfState{}}),
				w.Save(state(4, 50), puts(t, 4, 51, 51)))
		}, 51, 4, 50, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			files := openLog(t, writtenLog(t, test.write))
			for range 2 { // files may be read before
				l, err := ReadLog(files, math.MaxUint64)
				if err != nil || len(files) != test.files {
					t.Fatalf("%v, %d files", err, len(files))
				}
				if l.Index != test.index || l.Term != test.term || l.Committed != test.committed || l.Uncertain(0) != test.uncertain || l.Member != 0xa || l.Cluster != 0xc || l.Empty {
					t.Errorf("%+v, %d uncertain", l, l.Uncertain(0))
				}
			}
		})
	}
	_, err := ReadLog(nil, 0)
	fact.Error(t, err, "no log")
}

// TestReadDamagedLog: a member has promised nothing in a record that isn't whole, if that's the last one. All others have to be.
func TestReadDamagedLog(t *testing.T) {
	smallLogs(t)
	dir := writtenLog(t, func(w *wal.WAL) error {
		return errors.Join(w.Save(state(2, 1), puts(t, 2, 1, 12)), w.Save(state(2, 12), puts(t, 2, 13, 13)), w.Save(state(2, 12), puts(t, 2, 14, 15)))
	})
	whole := openLog(t, dir)
	if len(whole) != 2 {
		t.Fatal(len(whole))
	}
	last := read(t, whole[1].Name())
	end := bytes.LastIndex(last, []byte("xxxx"))
	zeroed := bytes.Clone(last)
	clear(zeroed[end-600:])
	flipped := bytes.Clone(last)
	flipped[end] ^= 1
	for name, test := range map[string]struct {
		file  int
		data  []byte
		index uint64 // 0 for an error
		named int    // the file in it
	}{
		"cut in its last record":       {1, last[:end], 14, 1},
		"the last one was not written": {1, zeroed, 14, 1},
		"a bit is wrong":               {1, flipped, 0, 1},
		"cut before its last file":     {0, read(t, whole[0].Name())[:4000], 0, 0},
		"another log's file":           {0, read(t, openLog(t, writtenLog(t, func(w *wal.WAL) error { return w.Save(state(3, 1), puts(t, 3, 1, 1)) }))[0].Name()), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := whole[test.file].Name()
			before := read(t, path)
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(path, before, 0o600); err != nil {
					t.Error(err)
				}
			}()
			l, err := ReadLog(openLog(t, dir), math.MaxUint64)
			if test.index == 0 {
				fact.Error(t, err, whole[test.named].Name())
			} else if err != nil || l.Index != test.index {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// storedUpTo is a database that has the log up to an entry of term 2.
func storedUpTo(t *testing.T, index uint64) *os.File {
	t.Helper()
	data := edited(t, func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		return errors.Join(meta.Put(consistentIndexKey, binary.BigEndian.AppendUint64(nil, index)), meta.Put(termKey, binary.BigEndian.AppendUint64(nil, 2)))
	})
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, data[:len(data)-sha256.Size], 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSurvivor: the copy for etcd to replay has the rest of the log, without anything about members, and all of it is committed.
func TestSurvivor(t *testing.T) {
	smallLogs(t)
	// Up to 4 in the database, up to 6 committed.
	log := openLog(t, writtenLog(t, func(w *wal.WAL) error {
		return w.Save(state(7, 6), append(puts(t, 2, 1, 6), entry(t, 7, 3, nil),
			entry(t, 8, 3, &pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 1}}), put(t, 9, 3), put(t, 10, 3),
			entry(t, 11, 3, &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_CORRUPT}})))
	}))
	for _, test := range []struct {
		keep    bool
		applied uint64
		pending int
		want    []uint64 // entries to replay, 0 for an empty one
	}{
		{true, 4, 4, []uint64{5, 6, 0, 0, 9, 10, 0}},
		{false, 4, 2, []uint64{5, 6}},
		{false, 6, 0, nil},
		{true, 9, 1, []uint64{10, 0}},
		{true, 10, 0, []uint64{0}},
		{false, 12, 0, nil}, // etcd knew more about its commits than it had written
	} {
		t.Run(fmt.Sprint(test.keep, test.applied), func(t *testing.T) {
			s, err := ReadSurvivor(storedUpTo(t, test.applied), log, test.keep)
			if err != nil || s.Pending() != test.pending {
				t.Fatalf("%+v, %v", s, err)
			}
			dir := t.TempDir()
			if err := s.WriteReplay(t.Context(), dir, "cp-1", peer("cp-1")); err != nil {
				t.Fatal(err)
			}
			dir += "/member"
			made, err := ReadLog(openLog(t, dir+"/wal"), test.applied)
			if err != nil || made.Member == 0xa || made.Cluster == 0xc || made.Cluster == 0 || made.Committed != test.applied+uint64(len(test.want)) || made.Index != made.Committed {
				t.Fatalf("%+v, %v", made, err)
			}
			var got []uint64
			for _, e := range made.entries {
				got = append(got, e.GetIndex())
				if len(e.GetData()) == 0 {
					got[len(got)-1] = 0
				}
				if e.GetType() != raftpb.EntryNormal {
					t.Errorf("entry %d is about members", e.GetIndex())
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			hasMember(t, dir, made.Member, test.applied, 6)

			dir = t.TempDir()
			ids, err := s.WriteRenewed(t.Context(), dir, "cp-1", peer("cp-1"))
			if test.pending > 0 {
				fact.Error(t, err, fmt.Sprint(test.pending))
				return
			}
			if err != nil || ids.Member == 0xa || ids.Cluster == 0xc {
				t.Fatalf("%+v, %v", ids, err)
			}
			hasMember(t, dir, ids.Member, firstIndex, 6+RevisionBump)
		})
	}
}

// hasMember checks the database of a member that's its cluster's only one.
func hasMember(t *testing.T, dir string, id, applied uint64, revision int64) {
	t.Helper()
	f, err := os.Open(dir + "/snap/db")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	members, err := StoredMembers(f)
	if diff := cmp.Diff([]Member{{ID: id, Name: "cp-1", PeerURL: peer("cp-1")}}, members); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	err = readDatabase(f, func(tx *bbolt.Tx) error {
		latest, err := latestRevision(tx)
		if got := binary.BigEndian.Uint64(tx.Bucket(metaBucket).Get(consistentIndexKey)); got != applied || latest != revision {
			t.Errorf("it has entries up to %d, and revision %d; want %d, %d", got, latest, applied, revision)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSurvivorFails(t *testing.T) {
	smallLogs(t)
	log := openLog(t, writtenLog(t, func(w *wal.WAL) error { return w.Save(state(2, 12), puts(t, 2, 10, 12)) }))
	_, err := ReadSurvivor(storedUpTo(t, 7), log, true)
	fact.Error(t, err, "entry 7", "entry 10")
	onlySnapshot := openLog(t, writtenLog(t, func(w *wal.WAL) error {
		return errors.Join(w.SaveSnapshot(&walpb.Snapshot{Index: new(uint64(9)), Term: new(uint64(2)), ConfState: &raftpb.ConfState{}}), w.Save(state(2, 9), nil))
	}))
	_, err = ReadSurvivor(storedUpTo(t, 7), onlySnapshot, false)
	fact.Error(t, err, "entry 7", "entry 10")

	used := storedUpTo(t, 12)
	running, err := bbolt.Open(used.Name(), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if _, err = ReadSurvivor(used, log, true); !errors.Is(err, ErrOpen) {
		t.Error(err)
	}
}
