// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"
)

// Data is what the write-ahead log of an etcd says about itself.
type Data struct {
	// Member and Cluster are the IDs that this etcd has.
	Member, Cluster uint64
	// Empty means that nothing was ever written to the log: the member has
	// started, and has learned nothing from the others yet.
	Empty bool
}

// DataHead is how much of a log's first file ReadData needs, in bytes.
const DataHead = 64 << 10

// The records of a log. A file of it begins with a checksum and the metadata;
// the first file goes on with an empty snapshot.
const (
	walMetadata = 1
	walEntry    = 2
	walState    = 3
	walChecksum = 4
	walSnapshot = 5
)

var walTable = crc32.MakeTable(crc32.Castagnoli)

// ReadData reads the beginning of a log's file. Etcd's own package for that
// costs every start of the program 4 MB of memory and 7 ms, and reads whole
// logs; this needs the first few records. Each is a size of eight bytes, whose
// highest byte says how many bytes of padding follow, and a message.
func ReadData(head []byte) (Data, error) {
	d := Data{Empty: true}
	var sum uint32
	for known := false; ; {
		record, rest, more := nextRecord(head)
		if !more {
			if !known {
				return d, errors.New("it does not begin as a log of etcd does")
			}
			// A record that goes beyond the head is one that was written.
			d.Empty = d.Empty && len(rest) == 0
			return d, nil
		}
		head = rest
		kind, crc, data, err := decodeRecord(record)
		if err != nil {
			return d, err
		}
		if kind == walChecksum {
			sum = crc
			continue
		}
		if sum = crc32.Update(sum, walTable, data); sum != crc && known {
			d.Empty = false // a record that was not written to its end, which etcd repairs
			return d, nil
		} else if sum != crc {
			return d, errors.New("it is damaged: a checksum does not fit")
		}
		switch kind {
		case walMetadata:
			known = true
			err = d.decodeMetadata(data)
		case walEntry:
			d.Empty = false
		case walState: // term, vote, commit
			err = d.decodeProgress(data, 3)
		case walSnapshot: // index, term
			err = d.decodeProgress(data, 1)
		}
		if err != nil {
			return d, err
		}
	}
}

// nextRecord splits a record off. Without one, rest is what there is of a
// record that is cut off.
func nextRecord(head []byte) (record, rest []byte, found bool) {
	const frame = 8
	if len(head) < frame {
		return nil, nil, false
	}
	field := binary.LittleEndian.Uint64(head)
	size := field & (1<<56 - 1)
	if size == 0 { // space that is not used yet
		return nil, nil, false
	}
	padding := uint64(0)
	if field>>63 != 0 {
		padding = field >> 56 & 0x7
	}
	if size+padding > uint64(len(head)-frame) {
		return nil, head, false
	}
	return head[frame : frame+size], head[frame+size+padding:], true
}

// decodeRecord is the message walpb.Record.
func decodeRecord(record []byte) (kind uint64, crc uint32, data []byte, err error) {
	err = fields(record, func(number protowire.Number, value []byte, n uint64) error {
		switch number {
		case 1:
			kind = n
		case 2:
			crc = uint32(n)
		case 3:
			data = value
		}
		return nil
	})
	return kind, crc, data, err
}

// decodeMetadata is the message etcdserverpb.Metadata.
func (d *Data) decodeMetadata(data []byte) error {
	return decodeIDs(data, &d.Member, &d.Cluster)
}

// decodeProgress looks at the field of a message that counts entries.
func (d *Data) decodeProgress(data []byte, count protowire.Number) error {
	return fields(data, func(number protowire.Number, _ []byte, n uint64) error {
		d.Empty = d.Empty && (number != count || n == 0)
		return nil
	})
}
