// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"path/filepath"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// raftLog is the log of a member. The database has its entries up to an index of a term.
type raftLog struct {
	ids         Data
	member      storedMember
	state       *raftpb.HardState
	entries     []*raftpb.Entry
	index, term uint64
}

// write makes the log's files. A snapshot of raft's state, in dir/snap, makes the member send the database to later members: the
// log alone doesn't lead to the database's contents.
func (l raftLog) write(dir string) error {
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: &l.ids.Member, ClusterID: &l.ids.Cluster})
	if err != nil {
		return err
	}
	members, err := membersForOld(l.member)
	if err != nil {
		return err
	}
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "wal"), metadata)
	if err != nil {
		return err
	}
	voters := &raftpb.ConfState{Voters: []uint64{l.ids.Member}}
	err = w.Save(l.state, l.entries)
	if err == nil {
		err = snap.New(zap.NewNop(), filepath.Join(dir, "snap")).SaveSnap(&raftpb.Snapshot{
			Data: members, Metadata: &raftpb.SnapshotMetadata{Index: &l.index, Term: &l.term, ConfState: voters}})
	}
	if err == nil {
		err = w.SaveSnapshot(&walpb.Snapshot{Index: &l.index, Term: &l.term, ConfState: voters})
	}
	if failure := w.Close(); err == nil {
		err = failure
	}
	return err
}

// membersForOld returns the members in the form of etcd 2, which etcd 3.6 and older still read.
func membersForOld(m storedMember) ([]byte, error) {
	store := v2store.New("/0", "/1")
	path := "/0/members/" + strconv.FormatUint(m.ID, 16)
	raft, err := json.Marshal(map[string]any{"peerURLs": m.PeerURLs})
	if err == nil {
		_, err = store.Set(path+"/raftAttributes", false, string(raft), v2store.TTLOptionSet{ExpireTime: v2store.Permanent})
	}
	if err != nil {
		return nil, err
	}
	return store.SaveNoCopy()
}
