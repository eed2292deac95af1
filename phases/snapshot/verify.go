// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Verified says what is known of a whole snapshot.
type Verified struct {
	Revision int64
	Keys     int
	// Recorded is false for a snapshot without a record, such as etcdctl's.
	Recorded bool
	// Sealed is true for a sealed snapshot, Opened if it was also opened. Files are then how many files of the control plane it has.
	Sealed, Opened bool
	Files          int
}

// Verify reads the snapshot at path, and compares it with its record. One without a record has to be whole. A sealed one is also
// read inside if there are identities; it has to have one of both.
func Verify(env *step.Env, path string, with snapshots.Identities) (v Verified, err error) {
	defer limitMemory()()
	defer func() {
		err = fault.WithRemedy(err, cmp.Or(fault.Remedy(err), "restore from another snapshot; `slipway etcd snapshot save` takes a new one"))
	}()
	v.Sealed = snapshots.IsSealed(path)
	record, err := snapshots.Read(env.Host, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	v.Recorded = err == nil
	if v.Recorded {
		v.Revision, v.Keys = record.Revision, record.Keys
		if err := matches(env.Host, path, record); err != nil {
			return v, err
		}
	}
	switch {
	case !v.Sealed:
		info, err := backup.VerifiedSnapshot(env, path)
		v.Revision, v.Keys = info.Revision, info.Keys
		return v, err
	case len(with) > 0:
		return v, v.open(env, path, record, with)
	case !v.Recorded:
		_, err := env.Host.Stat(path)
		return v, cmp.Or(err, fault.New(path+" has no record, so it has to be opened", "use --identity-file or --passphrase-file"))
	}
	return v, nil
}

// open reads a sealed snapshot to its end.
func (v *Verified) open(env *step.Env, path string, outer snapshots.Record, with snapshots.Identities) error {
	in, err := snapshots.Open(env.Host, path, with)
	if err != nil {
		remedy := "its age header says which kind of key it needs"
		if v.Recorded {
			remedy = fmt.Sprintf("it opens with %q, as its record says", outer.Sealed.OpensWith)
		}
		return fault.WithRemedy(err, remedy)
	}
	defer in.Close()
	if v.Recorded && (in.Record.ClusterID != outer.ClusterID || in.Record.Revision != outer.Revision || !in.Record.Taken.Equal(outer.Taken)) {
		return errors.Errorf("%s has a snapshot of etcd cluster %s, revision %d, and its record says cluster %s, revision %d",
			path, in.Record.ClusterID, in.Record.Revision, outer.ClusterID, outer.Revision)
	}
	v.Opened, v.Files, v.Revision, v.Keys = true, len(in.Files), in.Record.Revision, in.Record.Keys
	_, err = io.Copy(io.Discard, in.Snapshot)
	return errors.WithMessage(err, path)
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
	case snapshots.IsSealed(path) != (r.Sealed != nil):
		by := map[bool]string{true: "encrypted", false: "not encrypted"}[snapshots.IsSealed(path)]
		return fmt.Errorf("by its name, %s is %s; its record, %s, says otherwise", path, by, snapshots.RecordPath(path))
	}
	return nil
}

// sumOf returns the size and SHA-256 of a file, as the disk has it.
func sumOf(h host.FileReader, path string) (size int64, sum string, err error) {
	f, err := h.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // only a file system that can't, such as tmpfs, refuses
	hash := sha256.New()
	size, err = io.Copy(hash, f)
	return size, hex.EncodeToString(hash.Sum(nil)), err
}
