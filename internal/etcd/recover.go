// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
)

// Survivor is the data of a stopped member whose cluster has lost its quorum.
type Survivor struct {
	*Log
	// Applied is the last entry in the database, of AppliedTerm.
	Applied, AppliedTerm uint64
	// Alarms are the kinds of alarms in the database, in order.
	Alarms []string

	database *os.File
	keep     bool
}

// ReadSurvivor reads a member's database and its log, whose files are in order. With keep, changes that may not be committed count
// as committed; otherwise they're dropped. The error is ErrOpen while an etcd has the database open.
func ReadSurvivor(database *os.File, log []*os.File, keep bool) (*Survivor, error) {
	s := &Survivor{database: database, keep: keep}
	err := readDatabase(database, func(tx *bbolt.Tx) (err error) {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			return errors.Errorf("it has no bucket %q", metaBucket)
		}
		index, term := meta.Get(consistentIndexKey), meta.Get(termKey)
		if len(index) != 8 || len(term) != 8 {
			return errors.New("it does not say which entry of the log is its last")
		}
		s.Applied, s.AppliedTerm = binary.BigEndian.Uint64(index), binary.BigEndian.Uint64(term)
		s.Alarms, err = storedAlarms(tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.Log, err = ReadLog(log, s.Applied); err != nil {
		return nil, err
	}
	if missing := s.missing(); missing > 0 {
		return nil, errors.Errorf("%s ends at entry %d, and the log begins at entry %d: the member was about to get the whole database from the others",
			database.Name(), s.Applied, s.Applied+missing+1)
	}
	return s, nil
}

// missing is how many entries are neither in the database nor in the log.
func (s *Survivor) missing() uint64 {
	if first := s.replayed(); len(first) > 0 {
		return first[0].GetIndex() - s.Applied - 1
	}
	return s.last() - s.Applied
}

// last is the last entry of the new cluster.
func (s *Survivor) last() uint64 {
	if s.keep {
		return max(s.Applied, s.Index)
	}
	return max(s.Applied, min(s.Committed, s.Index))
}

// replayed returns the new cluster's entries that aren't in the database.
func (s *Survivor) replayed() (entries []*raftpb.Entry) {
	for _, e := range s.entries {
		if e.GetIndex() > s.Applied && e.GetIndex() <= s.last() {
			entries = append(entries, e)
		}
	}
	return entries
}

// Pending is how many changes of keys aren't in the database, and belong there. Only an etcd can add them (WriteReplay).
func (s *Survivor) Pending() int { return s.changes(s.Applied, s.last()) }

// WriteReplay makes data with which an etcd adds the pending changes to the database when it starts. It's that of a cluster with
// random IDs and one member, which has no business with the members of the survivor's cluster. dir is empty, and will become etcd's
// data directory. Copying ends with ctx.
func (s *Survivor) WriteReplay(ctx context.Context, dir, name, peerURL string) error {
	ids, m := newMember(name, peerURL)
	dir = filepath.Join(dir, "member")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	err := restoreDatabase(dir, s.copyDatabase(ctx), func(tx *bbolt.Tx) (err error) {
		defer recoverDamage(&err)()
		return replaceMembers(tx, m)
	})
	if err != nil {
		return errors.WithMessage(err, s.database.Name())
	}
	var entries []*raftpb.Entry
	last, term := s.Applied, s.AppliedTerm
	for _, e := range s.replayed() {
		if !changesKeys(e) { // it may be about a member that the new cluster doesn't have
			e = &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: e.Term, Index: e.Index}
		}
		entries = append(entries, e)
		last, term = e.GetIndex(), e.GetTerm()
	}
	return raftLog{ids, m, &raftpb.HardState{Term: &term, Commit: &last}, entries, s.Applied, s.AppliedTerm}.write(dir)
}

// WriteRenewed makes the data of a new cluster, as Restore does from a snapshot. Nothing may be pending.
func (s *Survivor) WriteRenewed(ctx context.Context, dir, name, peerURL string) (Data, error) {
	ids, m := newMember(name, peerURL)
	if pending := s.Pending(); pending > 0 {
		return ids, errors.Errorf("%s lacks changes that are in the log: %d", s.database.Name(), pending)
	}
	err := restoreDatabase(dir, s.copyDatabase(ctx), func(tx *bbolt.Tx) error { return rewrite(tx, m, 0) })
	if err == nil {
		err = restoreLog(dir, ids, m)
	}
	return ids, errors.WithMessage(err, s.database.Name())
}

func (s *Survivor) copyDatabase(ctx context.Context) func(*os.File) error {
	return func(f *os.File) error {
		_, err := io.Copy(Pace(0).Writer(ctx, f), io.NewSectionReader(s.database, 0, math.MaxInt64))
		return err
	}
}
