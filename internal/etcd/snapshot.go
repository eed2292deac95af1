// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// SnapshotInfo describes a snapshot, from its own contents.
type SnapshotInfo struct {
	// Hash is the SHA-256 of the database in hexadecimal. Size is the size of the file, which ends with the hash, in bytes.
	Hash string
	Size int64
	// Version is the oldest etcd that can use its data, such as 3.6.0; an older minor doesn't start with it. It's empty before
	// 3.6.
	Version string
	// Revision is the newest revision of its keys, Keys their number, and Members the cluster's members at the time. Only
	// VerifySnapshot finds these.
	Revision int64
	Keys     int
	Members  []Member
}

func (r *Real) Snapshot(ctx context.Context, peerURL string, w io.Writer) (info SnapshotInfo, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(r.options.Timeout, func() {
		cancel(errors.Errorf("etcd sent nothing for %s", r.options.Timeout))
	})
	defer silence.Stop()
	on, err := r.memberAt(ctx, peerURL)
	defer on.close()
	if err == nil {
		info, err = receive(ctx, on.client, w, func() { silence.Reset(r.options.Timeout) })
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.WithMessage(cause, err.Error())
	}
	return info, errors.WithMessagef(err, "take a snapshot of etcd's member at %s", peerURL)
}

// memberAt connects to the member at peerURL. Any member knows its client URLs.
func (r *Real) memberAt(ctx context.Context, peerURL string) (connection, error) {
	members, err := r.anyView(ctx)
	if err != nil {
		return connection{}, err
	}
	m := byPeer(members, peerURL)
	if m == nil {
		return connection{}, errors.New("it is not a member")
	}
	return r.reach(ctx, *m)
}

// receive copies a snapshot from a member to w. It calls arrived after each part.
func receive(ctx context.Context, c *clientv3.Client, w io.Writer, arrived func()) (SnapshotInfo, error) {
	answer, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer answer.Snapshot.Close()
	sum := newChecksum()
	if _, err := io.Copy(io.MultiWriter(sum, w, progress(arrived)), answer.Snapshot); err != nil {
		return SnapshotInfo{}, err
	}
	info, err := sum.info()
	info.Version = answer.Version
	return info, err
}

// progress is a writer that only notes the arrival of data.
type progress func()

func (p progress) Write(b []byte) (int, error) { p(); return len(b), nil }

// checksum receives a snapshot and compares the hash at its end with the data before it.
type checksum struct {
	hash hash.Hash
	end  []byte // the latest bytes, at most the hash's length
	size int64
}

func newChecksum() *checksum { return &checksum{hash: sha256.New()} }

func (c *checksum) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	c.end = append(c.end, p...)
	if excess := len(c.end) - sha256.Size; excess > 0 {
		c.hash.Write(c.end[:excess])
		c.end = append(c.end[:0], c.end[excess:]...)
	}
	return len(p), nil
}

// sector divides the size of every database. etcd's own tools use it to detect a hash at the end.
const sector = 512

func (c *checksum) info() (SnapshotInfo, error) {
	switch {
	case c.size%sector != sha256.Size || c.size == sha256.Size:
		return SnapshotInfo{}, errors.Errorf("it is incomplete, or not a snapshot of etcd: after %d bytes it does not end with a checksum", c.size)
	case !bytes.Equal(c.hash.Sum(nil), c.end):
		return SnapshotInfo{}, errors.New("it is damaged: its checksum is wrong")
	}
	return SnapshotInfo{Hash: hex.EncodeToString(c.end), Size: c.size}, nil
}
