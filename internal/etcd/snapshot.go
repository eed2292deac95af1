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

// SnapshotInfo is what a snapshot says of itself.
type SnapshotInfo struct {
	// Hash is the SHA-256 of the database in hexadecimal, and Size that of the
	// file in bytes, which ends with the hash.
	Hash string
	Size int64
	// Version is the oldest etcd that its data is for, such as 3.6.0; an older
	// minor does not start with it. It is empty before 3.6.
	Version string
	// Revision is the newest of its keys, Keys how many there are. Members lists
	// who had it. Only VerifySnapshot knows them.
	Revision int64
	Keys     int
	Members  []Member
}

// Snapshot implements Etcd.
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

// memberAt connects to the member at peerURL. Any member can say where it is.
func (r *Real) memberAt(ctx context.Context, peerURL string) (connection, error) {
	all, err := r.dial(ctx)
	if err != nil {
		return connection{}, err
	}
	defer all.close()
	members, _, err := first(ctx, all, func(ctx context.Context, c *clientv3.Client) ([]Member, error) {
		return list(ctx, c, clientv3.WithSerializable())
	})
	if err != nil {
		return connection{}, err
	}
	m := byPeer(members, peerURL)
	if m == nil {
		return connection{}, errors.New("it is not a member")
	}
	trust, err := r.tls()
	if err != nil {
		return connection{}, err
	}
	return reach(ctx, *m, trust)
}

// receive copies a snapshot from a member to w. arrived is called after each
// part.
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

// progress is a writer that only notes that something was written.
type progress func()

func (p progress) Write(b []byte) (int, error) { p(); return len(b), nil }

// checksum gets a snapshot and compares the hash at its end with what came
// before.
type checksum struct {
	hash hash.Hash
	end  []byte // the last bytes that came, at most as many as the hash has
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

// sector is a divisor of the size of any database, by which etcd's own tools see
// whether there is a hash after it.
const sector = 512

// info returns the hash and the size, or an error if the hash is wrong.
func (c *checksum) info() (SnapshotInfo, error) {
	switch {
	case c.size%sector != sha256.Size || c.size == sha256.Size:
		return SnapshotInfo{}, errors.Errorf("it is incomplete, or not a snapshot of etcd: after %d bytes it does not end with a checksum", c.size)
	case !bytes.Equal(c.hash.Sum(nil), c.end):
		return SnapshotInfo{}, errors.New("it is damaged: its checksum is wrong")
	}
	return SnapshotInfo{Hash: hex.EncodeToString(c.end), Size: c.size}, nil
}
