// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const member = "/var/lib/etcd/member"

// The survivor's log: the database ends at entry 4, the known commits at 5, and the log at 8.
const applied, committed, last = 4, 5, 8

// ownID is the survivor's.
const ownID = 0xa0

// leaveData gives a host the data of etcd's member cp-1, in a directory of root.
func leaveData(root string) error {
	dir := filepath.Join(root, member)
	database, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err == nil {
		err = errors.Join(os.MkdirAll(dir+"/snap", 0o700), os.WriteFile(dir+"/snap/db", database[:len(database)-sha256.Size], 0o600))
	}
	if err != nil {
		return err
	}
	if err := hasApplied(dir, applied); err != nil {
		return err
	}
	return leaveLog(dir + "/wal")
}

func leaveLog(dir string) error {
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(ownID)), ClusterID: new(uint64(0xc))})
	if err != nil {
		return err
	}
	wal.SegmentSizeBytes = 64 << 10 // a test's log is small
	w, err := wal.Create(zap.NewNop(), dir, metadata)
	if err != nil {
		return err
	}
	var entries []*raftpb.Entry
	for i := uint64(1); i <= last; i++ {
		data, err := proto.Marshal(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k")}})
		if err != nil {
			return err
		}
		entries = append(entries, &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Index: new(i), Term: new(uint64(2)), Data: data})
	}
	return errors.Join(w.Save(&raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(committed))}, entries), w.Close())
}

// hasApplied makes the database in a directory `member` have the log up to an entry, as an etcd does.
func hasApplied(dir string, index uint64) error {
	db, err := bbolt.Open(dir+"/snap/db", 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		return errors.Join(meta.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index)), meta.Put([]byte("term"), binary.BigEndian.AppendUint64(nil, 2)))
	})
	return errors.Join(err, db.Close())
}

// hasAlarm raises an alarm in the database in a directory `member`.
func hasAlarm(dir string, kind pb.AlarmType) error {
	key, err := proto.Marshal(&pb.AlarmMember{MemberID: ownID, Alarm: kind})
	if err != nil {
		return err
	}
	db, err := bbolt.Open(dir+"/snap/db", 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte("alarm"))
		if err != nil {
			return err
		}
		return bucket.Put(key, nil)
	})
	return errors.Join(err, db.Close())
}

// appliedIn returns the last entry in a database, and its cluster's members.
func appliedIn(dir string) (index uint64, members []etcd.Member, err error) {
	f, err := os.Open(dir + "/snap/db")
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	if members, err = etcd.StoredMembers(f); err != nil {
		return 0, nil, err
	}
	db, err := bbolt.Open(dir+"/snap/db", 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, nil, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		index = binary.BigEndian.Uint64(tx.Bucket([]byte("meta")).Get([]byte("consistent_index")))
		return nil
	})
	return index, members, err
}

// lostQuorum is an etcd of voters cp-1, which is this host's, cp-2 and so on.
type lostQuorum struct {
	etcd.Etcd
	all []etcd.Member
	// answer are the other members that answer, and what they know to be committed; fails are the errors of others, or of single URLs.
	answer map[string]uint64
	fails  map[string]error
	works  bool
	// foreign is a member at whose address another host answers.
	foreign string
	// alarms are the alarms that this host's member knows.
	alarms []etcd.Alarm
	health error
	// root is the host's.
	root string
}

func newLostQuorum(voters int) *lostQuorum {
	q := &lostQuorum{answer: map[string]uint64{}, fails: map[string]error{}}
	for i := range voters {
		q.all = append(q.all, etcd.Member{ID: uint64(ownID + i), Name: fmt.Sprintf("cp-%d", i+1), PeerURL: fmt.Sprintf("https://192.0.2.1%d:2380", i+1)})
	}
	q.all[0].PeerURL = phasetest.OwnPeer
	return q
}

func (q *lostQuorum) Peers(_ context.Context, urls []string) []etcd.Peer {
	found := phasetest.Silent(urls)
	for i, url := range urls {
		for _, m := range q.all {
			if _, answers := q.answer[m.Name]; m.At(url) && answers || url == phasetest.OwnPeer {
				found[i] = etcd.Peer{URL: url, Members: q.all}
			}
		}
		for _, m := range q.all {
			if m.Name == q.foreign && m.At(url) {
				found[i] = etcd.Peer{URL: url, Err: etcd.AcceptedError{Err: errors.New("x509: unknown authority")}, Stranger: true}
			}
			if err := errors.Join(q.fails[m.Name], q.fails[url]); m.At(url) && err != nil {
				found[i] = etcd.Peer{URL: url, Err: err}
			}
		}
	}
	return found
}

func (q *lostQuorum) Health(ctx context.Context) ([]etcd.Health, error) {
	return q.HealthOf(ctx, q.all), nil
}

func (q *lostQuorum) HealthOf(_ context.Context, members []etcd.Member) (all []etcd.Health) {
	for _, m := range members {
		h := etcd.Health{Member: m, Err: errors.New("it has no leader")}
		h.Status.Committed, h.Answers = q.answer[m.Name], q.answer[m.Name] > 0 || m.ID == ownID
		if q.works {
			h.Err = nil
		}
		if m.ID == ownID {
			h.Status.Alarms = q.alarms
		}
		if q.health != nil {
			h = etcd.Health{Member: m, Err: q.health}
		}
		all = append(all, h)
	}
	return all
}

// Members are the recovered cluster's.
func (q *lostQuorum) Members(context.Context) ([]etcd.Member, error) {
	head, err := os.ReadFile(q.root + phasetest.EtcdLog)
	if err != nil {
		return nil, err
	}
	data, err := etcd.ReadData(head[:etcd.DataHead])
	return []etcd.Member{{Cluster: data.Cluster, PeerURL: phasetest.OwnPeer}}, err
}

func (q *lostQuorum) MoveLeader(context.Context, etcd.Identity) (bool, error) { return false, nil }

func (q *lostQuorum) CaughtUp(context.Context, etcd.Identity) error { return nil }
