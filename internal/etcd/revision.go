// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"

	"github.com/pkg/errors"
)

// A record's key is its main revision in eight bytes, an underscore, the change's position in that revision, and t for a deletion.
const revisionSize, revisionSeparator, deletedMark = 17, '_', 't'

func parseRevision(key []byte) (main int64, deleted bool, err error) {
	deleted = len(key) == revisionSize+1 && key[revisionSize] == deletedMark
	if len(key) != revisionSize && !deleted || key[8] != revisionSeparator || key[0] > 127 {
		return 0, false, errors.Errorf("it has a record with the key %x, which is not a revision", key)
	}
	return int64(binary.BigEndian.Uint64(key)), deleted, nil
}

func revisionKey(main int64) []byte {
	key := binary.BigEndian.AppendUint64(nil, uint64(main))
	return append(append(key, revisionSeparator), make([]byte, revisionSize-len(key)-1)...)
}
