// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"io"
	"io/fs"

	"github.com/pkg/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Data identifies an etcd's write-ahead log.
type Data struct {
	// Member and Cluster are this etcd's IDs.
	Member, Cluster uint64
	// Empty means nothing was ever written to the log: the member has started, but hasn't learned anything from the others yet.
	Empty bool
}

// DataHead is how much of a log's first file ReadData needs, in bytes.
const DataHead = 64 << 10

// ReadData reads the beginning of a log file, to find its owner. A record that's damaged or extends beyond the head counts as
// written: etcd repairs the end of its log after a power cut.
func ReadData(head []byte) (Data, error) {
	d := Data{Empty: true}
	decoder := wal.NewDecoder(logHead{bytes.NewReader(head)})
	for known := false; ; {
		var record walpb.Record
		err := decoder.Decode(&record)
		switch {
		case known && errors.Is(err, io.EOF):
			return d, nil
		case known && err != nil:
			d.Empty = false
			return d, nil //nolint:nilerr // damage after the first record means that there is data
		case err != nil:
			return d, errors.Wrap(err, "it does not begin like a log of etcd")
		}
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
			continue
		}
		known = known || record.GetType() == wal.MetadataType
		if err := d.add(&record); err != nil {
			return d, err
		}
	}
}

func (d *Data) add(record *walpb.Record) error {
	switch record.GetType() {
	case wal.MetadataType:
		var ids pb.Metadata
		if err := proto.Unmarshal(record.GetData(), &ids); err != nil {
			return errors.Wrap(err, "its metadata")
		}
		d.Member, d.Cluster = ids.GetNodeID(), ids.GetClusterID()
	case wal.EntryType:
		d.Empty = false
	case wal.StateType:
		var state raftpb.HardState
		if err := proto.Unmarshal(record.GetData(), &state); err != nil {
			return errors.Wrap(err, "its state")
		}
		d.Empty = d.Empty && state.GetCommit() == 0
	case wal.SnapshotType: // each log begins with an empty snapshot
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.GetData(), &snapshot); err != nil {
			return errors.Wrap(err, "its snapshot")
		}
		d.Empty = d.Empty && snapshot.GetIndex() == 0
	}
	return nil
}

// logHead is the beginning of a log file, in the form the decoder reads.
type logHead struct{ *bytes.Reader }

func (h logHead) FileInfo() (fs.FileInfo, error) { return headInfo{size: h.Size()}, nil }

// headInfo has only the parts of a file's description the decoder asks for.
type headInfo struct {
	fs.FileInfo
	size int64
}

func (i headInfo) Name() string { return "the log" }
func (i headInfo) Size() int64  { return i.size }
