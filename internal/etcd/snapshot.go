// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"hash/maphash"
	"io"
	"math"
	"os"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// SnapshotInfo describes a snapshot, from its own contents.
type SnapshotInfo struct {
	// Hash is the SHA-256 of the database in hexadecimal. The file ends with it; FileHash is the SHA-256 of the file, Size its size in
	// bytes.
	Hash, FileHash string
	Size           int64
	// Version is the oldest etcd for its data, such as 3.6.0: an older minor doesn't start with it. It's empty before 3.6.
	Version string
	// Only VerifySnapshot finds these: the newest revision of its keys, their number, the cluster's members at the time, and what it
	// says about the Kubernetes cluster.
	Revision int64
	Keys     int
	Members  []Member
	Contents Contents
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
	c.hash.Write(c.end)
	return SnapshotInfo{Hash: hex.EncodeToString(c.end), FileHash: hex.EncodeToString(c.hash.Sum(nil)), Size: c.size}, nil
}

// The names of etcd's buckets, and of the keys in bucket meta. etcd's own constants are in packages that slow down each start of
// the program: docs/design/etcd-restore.md.
var (
	keyBucket     = []byte("key")
	metaBucket    = []byte("meta")
	membersBucket = []byte("members")
	removedBucket = []byte("members_removed")
	alarmBucket   = []byte("alarm")
	clusterBucket = []byte("cluster")

	storageVersionKey   = []byte("storageVersion")
	consistentIndexKey  = []byte("consistent_index")
	termKey             = []byte("term")
	confStateKey        = []byte("confState")
	scheduledCompactKey = []byte("scheduledCompactRev")
	finishedCompactKey  = []byte("finishedCompactRev")
)

// VerifySnapshot reads a whole snapshot, without an etcd: its checksum, its buckets, and each record. It fails if anything is
// wrong. It needs memory for a hash of each key, but not for values. No checksum can show damage already in the running etcd's
// database. Much of it is found anyway, but without bbolt.Tx.Check: it runs in its own goroutine, where a damaged page can end
// the program, and takes most of the time. A file that was just written is read from the disk, not from memory.
func VerifySnapshot(f *os.File) (SnapshotInfo, error) {
	return Pace(0).VerifySnapshot(context.Background(), f)
}

// VerifySnapshot is the function VerifySnapshot at this pace.
func (p Pace) VerifySnapshot(ctx context.Context, f *os.File) (SnapshotInfo, error) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // only a file system that can't, such as tmpfs, refuses
	info, err := p.verifySnapshot(ctx, f)
	return info, errors.WithMessagef(err, "verify the snapshot %s", f.Name())
}

func (p Pace) verifySnapshot(ctx context.Context, f *os.File) (SnapshotInfo, error) {
	sum := newChecksum()
	if _, err := io.Copy(p.Writer(ctx, sum), io.NewSectionReader(f, 0, math.MaxInt64)); err != nil {
		return SnapshotInfo{}, err
	}
	info, err := sum.info()
	if err != nil {
		return info, err
	}
	db, err := openDatabase(f, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return info, err
	}
	defer db.Close()
	return info, db.View(func(tx *bbolt.Tx) error { return info.read(tx, p.keeper(ctx)) })
}

// openDatabase opens the database in f, and leaves f open. Damage can make bbolt panic.
func openDatabase(f *os.File, options *bbolt.Options) (db *bbolt.DB, err error) {
	defer recoverDamage(&err)()
	options.Timeout = time.Second // for the lock of a running etcd
	options.OpenFile = func(string, int, os.FileMode) (*os.File, error) {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewFile(uintptr(fd), f.Name()), err
	}
	return bbolt.Open(f.Name(), 0o600, options)
}

// recoverDamage turns a panic, or access to a page that isn't in the file, into an error.
func recoverDamage(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			*err = errors.Errorf("its database is damaged: %v", r)
		}
	}
}

func (info *SnapshotInfo) read(tx *bbolt.Tx, keep func(n int) error) (err error) {
	defer recoverDamage(&err)()
	if tx.Size() > info.Size {
		return errors.Errorf("it is incomplete: its database has %d bytes", tx.Size())
	}
	for _, name := range [][]byte{keyBucket, metaBucket, membersBucket, clusterBucket} {
		if tx.Bucket(name) == nil {
			return errors.Errorf("it is not of etcd 3.5 or newer: it has no bucket %q", name)
		}
	}
	info.Version = string(tx.Bucket(metaBucket).Get(storageVersionKey))
	if info.Members, err = membersIn(tx); err != nil {
		return err
	}
	if err := info.readKeys(tx, keep); err != nil {
		return err
	}
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if bytes.Equal(name, keyBucket) {
			return nil
		}
		return visit(b, func([]byte, []byte) error { return nil })
	})
}

// maxVisited is how many bytes of records visit goes through before it gives their pages back.
const maxVisited = 1 << 20

// visit goes through a bucket, and makes sure bbolt doesn't return data from outside the file: a record holds the position and
// length of its key and value, and bbolt trusts them. A small bucket may be a copy in memory.
func visit(b *bbolt.Bucket, each func(key, value []byte) error) error {
	from := b.Tx().DB().Info().Data
	to := from + uintptr(b.Tx().Size())
	visited := 0
	return b.ForEach(func(key, value []byte) error {
		if visited += len(key) + len(value); visited > maxVisited {
			visited = 0
			// The pages count as this process's memory until it gives them back. The kernel has them in its cache.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
		for _, part := range [][]byte{key, value} {
			at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
			if b.RootPage() != 0 && len(part) > 0 && (at < from || at > to || uintptr(len(part)) > to-at) {
				return errors.New("its database is damaged: a record is not in the file")
			}
		}
		return each(key, value)
	})
}

func membersIn(tx *bbolt.Tx) (members []Member, err error) {
	err = visit(tx.Bucket(membersBucket), func(_, value []byte) error {
		var m storedMember
		if err := json.Unmarshal(value, &m); err != nil {
			return errors.Wrap(err, "its members")
		}
		members = append(members, m.member())
		return nil
	})
	if err == nil && len(members) == 0 {
		err = errors.New("it has no members")
	}
	sortByPeer(members)
	return members, err
}

// readKeys counts the keys, and finds the newest revision. In order of revision, a key counts unless its last record deletes it.
func (info *SnapshotInfo) readKeys(tx *bbolt.Tx, keep func(n int) error) (err error) {
	seed, alive, contents := maphash.MakeSeed(), map[uint64]struct{}{}, newContentsReader()
	var record mvccpb.KeyValue
	err = visit(tx.Bucket(keyBucket), func(key, value []byte) error {
		r, deleted, err := parseRevision(key)
		if err != nil {
			return err
		}
		if r < info.Revision {
			return errors.Errorf("its database is damaged: revision %d comes after %d", r, info.Revision)
		}
		if err := proto.Unmarshal(value, &record); err != nil {
			return errors.Wrapf(err, "its record of revision %d", r)
		}
		info.Revision = r
		hash := maphash.Bytes(seed, record.GetKey())
		if contents.add(hash, record.GetKey(), record.GetValue(), deleted); deleted {
			delete(alive, hash)
		} else {
			alive[hash] = struct{}{}
		}
		return keep(len(key) + len(value))
	})
	info.Keys = len(alive)
	if err == nil {
		info.Contents, err = contents.contents(tx)
	}
	return err
}
