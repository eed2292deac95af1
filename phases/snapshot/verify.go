// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Verify reads the snapshot at path, and compares it with its record. One without a record, such as etcdctl's, has to be whole.
func Verify(env *step.Env, path string) (info etcd.SnapshotInfo, recorded bool, err error) {
	record, err := snapshots.Read(env.Host, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return info, false, err
	}
	recorded = err == nil
	if recorded {
		err = matches(env.Host, path, record)
	} else {
		err = nil
	}
	if err == nil {
		info, err = backup.VerifiedSnapshot(env, path)
	}
	return info, recorded, fault.WithRemedy(err, "restore from another snapshot; `slipway etcd snapshot save` takes a new one")
}

// matches compares a file with its record.
func matches(h host.FileReader, path string, r snapshots.Record) error {
	size, sum, err := sumOf(h, path)
	switch {
	case err != nil:
		return err
	case size != r.Size:
		return fmt.Errorf("%s has %d bytes, and its record says %d", path, size, r.Size)
	case sum != r.SHA256:
		return fmt.Errorf("%s has the SHA-256 %s, and its record says %s", path, sum, r.SHA256)
	}
	return nil
}

// sumOf returns the size and SHA-256 of a file.
func sumOf(h host.FileReader, path string) (size int64, sum string, err error) {
	f, err := h.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, f)
	return size, hex.EncodeToString(hash.Sum(nil)), err
}
