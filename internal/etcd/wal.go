// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/pkg/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Log is a member's write-ahead log: all it has promised the others to keep.
type Log struct {
	Data
	// Index and Term are of the last entry. Of two members of a cluster, the member with the higher term has the longer log or, if
	// the terms are equal, the higher index.
	Index, Term uint64
	// Committed is the last entry that the member knows to be committed: a majority has it. It may know that of later entries,
	// and not have written it down yet.
	Committed uint64
	// entries has all entries after Committed, and those after the index given to ReadLog.
	entries []*raftpb.Entry
}

// ReadLog reads the files of a log, which are in order. It keeps the entries after an index: the last in the database, or the
// highest of all numbers to keep only entries that may not be committed. An etcd may write to the log meanwhile. It ends at the first
// record that isn't whole: the member hasn't promised anything from there on.
func ReadLog(files []*os.File, after uint64) (*Log, error) {
	if len(files) == 0 {
		return nil, errors.New("there is no log of etcd")
	}
	l, at := &Log{Data: Data{Empty: true}}, 0
	var readers []fileutil.FileReader
	for i, f := range files {
		readers = append(readers, logFile{f, io.NewSectionReader(f, 0, math.MaxInt64), func() { at = i }})
	}
	decoder := wal.NewDecoder(readers...)
	for {
		var record walpb.Record
		err := decoder.Decode(&record)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && at == len(files)-1 {
			return l, nil
		}
		if err == nil && record.GetType() == wal.CrcType {
			if before := decoder.LastCRC(); before != 0 {
				err = record.Validate(before)
			}
			decoder.UpdateCRC(record.GetCrc())
		} else if err == nil {
			err = l.take(&record, after)
		}
		if err != nil {
			return nil, errors.Wrapf(err, "%s is damaged", files[at].Name())
		}
	}
}

// logFile is a log file in the form the decoder reads. It notes that it's being read.
type logFile struct {
	file  *os.File
	data  io.Reader
	reads func()
}

func (f logFile) Read(p []byte) (int, error) {
	f.reads()
	return f.data.Read(p)
}

func (f logFile) FileInfo() (fs.FileInfo, error) { return f.file.Stat() }

func (l *Log) take(record *walpb.Record, after uint64) error {
	if err := l.add(record); err != nil {
		return err
	}
	switch record.GetType() {
	case wal.EntryType:
		entry := &raftpb.Entry{}
		if err := proto.Unmarshal(record.GetData(), entry); err != nil {
			return errors.Wrap(err, "an entry")
		}
		return l.append(entry)
	case wal.StateType:
		var state raftpb.HardState
		if err := proto.Unmarshal(record.GetData(), &state); err != nil {
			return errors.Wrap(err, "its state")
		}
		l.Committed = max(l.Committed, state.GetCommit())
		for len(l.entries) > 0 && l.entries[0].GetIndex() <= min(l.Committed, after) { // no later leader can replace it
			l.entries = l.entries[1:]
		}
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.GetData(), &snapshot); err != nil {
			return errors.Wrap(err, "its snapshot")
		}
		if snapshot.GetIndex() > l.Index { // the leader has sent the whole database
			l.Index, l.Term, l.entries = snapshot.GetIndex(), snapshot.GetTerm(), nil
		}
		l.Committed = max(l.Committed, snapshot.GetIndex())
	}
	return nil
}

// append adds an entry. It replaces those from its index on: a new leader had others, so they weren't committed.
func (l *Log) append(entry *raftpb.Entry) error {
	index := entry.GetIndex()
	for len(l.entries) > 0 && l.entries[len(l.entries)-1].GetIndex() >= index {
		l.entries = l.entries[:len(l.entries)-1]
	}
	if last := len(l.entries) - 1; last >= 0 && l.entries[last].GetIndex() != index-1 {
		return errors.Errorf("entry %d follows entry %d", index, l.entries[last].GetIndex())
	}
	l.entries = append(l.entries, entry)
	l.Index, l.Term = index, entry.GetTerm()
	return nil
}

// Uncertain is how many changes after applied may not be committed, the last entry in the database: nobody knows if clients were
// told that they succeeded.
func (l *Log) Uncertain(applied uint64) int { return l.changes(max(applied, l.Committed), l.Index) }

// changes counts the entries in (after, last] that change keys or leases.
func (l *Log) changes(after, last uint64) (count int) {
	for _, e := range l.entries {
		if e.GetIndex() > after && e.GetIndex() <= last && changesKeys(e) {
			count++
		}
	}
	return count
}

// changesKeys reports whether an entry is a client's change. The others concern members, also by their alarm CORRUPT, or are empty,
// as a new leader's first.
func changesKeys(e *raftpb.Entry) bool {
	var request pb.InternalRaftRequest
	return e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 && proto.Unmarshal(e.GetData(), &request) == nil &&
		request.GetClusterMemberAttrSet() == nil && request.GetClusterVersionSet() == nil && request.GetDowngradeInfoSet() == nil &&
		request.GetAlarm().GetAlarm() != pb.AlarmType_CORRUPT
}
