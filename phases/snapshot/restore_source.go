// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	stderrors "errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Source is the file that a restore takes its data from: a snapshot, or a sealed one.
type Source struct {
	File string
	// With opens a sealed snapshot.
	With snapshots.Identities

	info etcd.SnapshotInfo
	// record is empty, and recorded false, for a snapshot without one. files are those of a sealed snapshot.
	record   snapshots.Record
	recorded bool
	files    []snapshots.File
	// configuration is the cluster's, as documents for init; nil if the snapshot has none.
	configuration []byte
}

// read reads and verifies the snapshot.
func (s *Source) read(env *step.Env) error {
	if snapshots.IsSealed(s.File) {
		return s.readSealed(env)
	}
	v, err := Verify(env, s.File, nil)
	if err != nil {
		return err
	}
	if s.recorded = v.Recorded; s.recorded {
		if s.record, err = snapshots.Read(env.Host, s.File); err != nil {
			return err
		}
	}
	s.info, err = backup.VerifiedSnapshot(env, s.File)
	s.configuration = storedConfiguration(s.info.Contents)
	return err
}

// checkIdentities fails without a key for a sealed snapshot.
func (s *Source) checkIdentities() error {
	if len(s.With) == 0 {
		return fault.New(s.File+" is encrypted", "name the file with its private key (--identity-file) or passphrase (--passphrase-file)")
	}
	return nil
}

// readSealed takes the facts from the record inside.
func (s *Source) readSealed(env *step.Env) error {
	if err := s.checkIdentities(); err != nil {
		return err
	}
	if _, err := Verify(env, s.File, s.With); err != nil {
		return err
	}
	in, err := snapshots.Open(env.Host, s.File, s.With)
	if err != nil {
		return err
	}
	defer in.Close()
	s.record, s.recorded, s.files, s.configuration = in.Record, true, in.Files, in.Configuration
	s.info = etcd.SnapshotInfo{Size: in.Record.Size, Version: in.Record.Storage, Revision: in.Record.Revision, Keys: in.Record.Keys}
	for _, m := range in.Record.Members {
		id, _ := strconv.ParseUint(m.ID, 16, 64) // only for messages
		s.info.Members = append(s.info.Members, etcd.Member{ID: id, Name: m.Name, PeerURL: m.PeerURL})
	}
	return nil
}

// count is a number of things, in words that fit.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// damage warns of a snapshot with the alarm CORRUPT; empty without it.
func (s *Source) damage() string {
	if !slices.Contains(s.record.Alarms, "CORRUPT") {
		return ""
	}
	return "The snapshot was taken while etcd had the alarm CORRUPT, so its keys may be a damaged member's: check the cluster's objects afterwards. " +
		"The alarm ends, because a single member cannot differ from others"
}

// need is the space in bytes for the data made of the snapshot, which is opened beside it if it's sealed.
func (s *Source) need() uint64 {
	bytes := uint64(s.info.Size) + backup.LogsRoom
	if snapshots.IsSealed(s.File) {
		bytes += uint64(s.info.Size)
	}
	return bytes
}

// fill makes etcd's data in dir, an empty directory of this process's, until ctx ends.
func (s *Source) fill(ctx context.Context, env *step.Env, dir, name, peerURL string, atLeast int64) (etcd.Data, error) {
	snapshot, err := s.open(ctx, env, dir)
	if err != nil {
		return etcd.Data{}, err
	}
	defer snapshot.Close()
	return etcd.Restore(ctx, snapshot, dir, name, peerURL, atLeast, env.Host.Now())
}

var errAnother = errors.New("it no longer holds the snapshot that this command read when it began")

// openPlain fails if the file has another snapshot than read has found in it: with another hash at its end, which the rest must have.
func (s *Source) openPlain(env *step.Env) (*os.File, error) {
	f, err := env.Host.Open(s.File)
	if err != nil {
		return nil, err
	}
	end := make([]byte, sha256.Size)
	info, err := f.Stat()
	if err == nil {
		_, err = f.ReadAt(end, info.Size()-sha256.Size)
	}
	if err == nil && hex.EncodeToString(end) != s.info.Hash {
		err = errAnother
	}
	if err != nil {
		return nil, stderrors.Join(errors.WithMessage(err, s.File), f.Close())
	}
	return f, nil
}

// open returns the snapshot. A sealed one is decrypted to a file in dir, whose name goes at once, and which has to be whole.
func (s *Source) open(ctx context.Context, env *step.Env, dir string) (*os.File, error) {
	if !snapshots.IsSealed(s.File) {
		return s.openPlain(env)
	}
	in, err := snapshots.Open(env.Host, s.File, s.With)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if in.Record.SHA256 != s.record.SHA256 {
		return nil, errors.WithMessage(errAnother, s.File)
	}
	path := filepath.Join(dir, "snapshot")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		return nil, errors.WithStack(err)
	}
	if err = os.Remove(path); err == nil {
		_, err = io.Copy(etcd.Pace(0).Writer(ctx, f), in.Snapshot)
	}
	if err == nil {
		_, err = etcd.Pace(0).VerifySnapshot(ctx, f)
	}
	if err != nil {
		return nil, stderrors.Join(errors.WithMessage(err, s.File), f.Close())
	}
	return f, nil
}
