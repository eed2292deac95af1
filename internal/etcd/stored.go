// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"os"

	"go.etcd.io/bbolt"
)

// StoredRevision reads the newest revision of the keys from the database of a stopped etcd: the file snap/db in its directory
// `member`. The log may have some later members.
func StoredRevision(f *os.File) (revision int64, err error) {
	err = readDatabase(f, func(tx *bbolt.Tx) (err error) {
		revision, err = latestRevision(tx)
		return err
	})
	return revision, err
}
