// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/fact"
)

// real36 and real37 are etcdctl's snapshots of etcd 3.6.8 and 3.7.0: with two keys, one of them changed, and a deleted key.
const real36, real37 = "testdata/snapshot-3.6.db", "testdata/snapshot-3.7.db"

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func verified(t testing.TB, data []byte) (SnapshotInfo, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return VerifySnapshot(f)
}

// resealed is a snapshot with a valid checksum.
func resealed(database []byte) []byte {
	sum := sha256.Sum256(database)
	return append(bytes.Clone(database), sum[:]...)
}

func TestSnapshot(t *testing.T) {
	f, r := led(t, "a", "b")
	f.snapshot = read(t, real36)
	var got bytes.Buffer
	info, err := r.Snapshot(t.Context(), peer("b"), &got)
	if err != nil || !bytes.Equal(got.Bytes(), f.snapshot) {
		t.Fatalf("%d bytes, %v", got.Len(), err)
	}
	want, err := verified(t, got.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want.Revision, want.Keys, want.Members = 0, 0, nil
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// limitedWriter is a disk that fills up.
type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, &os.PathError{Op: "write", Path: "/snapshot.db", Err: unix.ENOSPC}
	}
	return len(p), nil
}

func TestSnapshotFails(t *testing.T) {
	whole := read(t, real36)
	flipped := bytes.Clone(whole)
	flipped[9000] ^= 1
	for name, test := range map[string]struct {
		change func(f *fakeCluster)
		to     io.Writer
		from   string
		says   string
		cause  error
	}{
		"the stream breaks off":   {change: func(f *fakeCluster) { f.cut = 9000 }, says: "is closing"},
		"it ends too early":       {change: func(f *fakeCluster) { f.snapshot = whole[:20001] }, says: "20001 bytes"},
		"it ends after a sector":  {change: func(f *fakeCluster) { f.snapshot = whole[:8192] }, says: "8192 bytes"},
		"it ends in a page":       {change: func(f *fakeCluster) { f.snapshot = whole[:8192+32] }, says: "damaged"},
		"it is empty":             {change: func(f *fakeCluster) { f.snapshot = nil }, says: "EOF"},
		"it is a hash of nothing": {change: func(f *fakeCluster) { f.snapshot = resealed(nil) }, says: "32 bytes"},
		"a bit is wrong":          {change: func(f *fakeCluster) { f.snapshot = flipped }, says: "damaged"},
		"it stops":                {change: func(f *fakeCluster) { f.stuck = 9000 }, says: "nothing for 3s"},
		"not a member":            {from: "z", says: "a member"},
		"another answers":         {change: func(f *fakeCluster) { f.status[2].Header.MemberId = 9 }, says: "member 9"},
		"it is not running":       {change: func(f *fakeCluster) { f.members[1].ClientURLs = []string{gone(t)} }, says: "connection refused"},
		"the disk is full":        {to: &limitedWriter{5000}, says: "no space", cause: unix.ENOSPC},
		"the reader fails":        {change: func(f *fakeCluster) { f.before = once("snapshot", iotest.ErrTimeout) }, says: "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := led(t, "a", "b")
			f.snapshot = whole
			if name == "it stops" {
				r.options.Timeout = 3 * time.Second
			}
			if test.change != nil {
				test.change(f)
			}
			from, to := "b", io.Discard
			if test.from != "" {
				from = test.from
			}
			if test.to != nil {
				to = test.to
			}
			info, err := r.Snapshot(t.Context(), peer(from), to)
			fact.Error(t, err, "snapshot", peer(from), test.says)
			if test.cause != nil && !errors.Is(err, test.cause) {
				t.Errorf("%+v, error %v, want %v", info, err, test.cause)
			}
		})
	}
}

// TestSnapshotTakesItsTime: the whole may take longer than the timeout, as long as something arrives.
func TestSnapshotTakesItsTime(t *testing.T) {
	f, r := led(t, "a")
	f.snapshot, r.options.Timeout = read(t, real36), 5*time.Second
	parts := 0
	slow := writerFunc(func(p []byte) (int, error) {
		if parts++; parts <= 11 {
			time.Sleep(500 * time.Millisecond) // together, longer than the timeout
		}
		return len(p), nil
	})
	started := time.Now()
	if _, err := r.Snapshot(t.Context(), peer("a"), slow); err != nil || time.Since(started) < r.options.Timeout {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Snapshot(ctx, peer("a"), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestVerifySnapshot(t *testing.T) {
	cp1 := []Member{{ID: 0x2e1259d415f2a040, Name: "cp-1", PeerURL: "http://127.0.0.1:23800", ClientURLs: []string{"http://127.0.0.1:23790"}}}
	for path, want := range map[string]SnapshotInfo{
		real36: {Hash: "321da4d7a50334dcfd24d61e2b07bafba069a6bfbd8b1aa61d32a8d7dfcacc2d", FileHash: "667eede4e853a86c11d17df39986facbaa63e27a97100dd8d6a3ad3d1075d75a", Size: 24608, Version: "3.6.0", Revision: 6, Keys: 2, Members: cp1},
		real37: {Hash: "f2e2c260fe02c73219503499fa2c1910089a584ad73d5741d528d0f78fff0b7a", FileHash: "8d184af6000ecee4cd40a75d8fb7ae8c75b3db8404332ebcf8eb755cb8a7e278", Size: 20512, Version: "3.7.0", Revision: 6, Keys: 2, Members: cp1},
	} {
		before := read(t, path)
		got, err := verified(t, before)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// edited is a snapshot with a changed database and a valid checksum.
func edited(t *testing.T, change func(tx *bbolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	data := read(t, real36)
	if err := os.WriteFile(path, data[:len(data)-sha256.Size], 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return resealed(read(t, path))
}

// TestVerifyDamagedSnapshot has files that etcd couldn't use, each with a wrong and a valid checksum.
func TestVerifyDamagedSnapshot(t *testing.T) {
	whole := read(t, real36)
	database := whole[:len(whole)-sha256.Size]
	in := func(bucket []byte, key, value string) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte(key), []byte(value)) }
	}
	garbage := bytes.Clone(database)
	for i := 8192; i < len(garbage); i++ {
		garbage[i] = byte(i)
	}
	// In pages 2 and 3, the position of the first record of bucket key is here.
	misplaced := bytes.Clone(database)
	for _, at := range []int{2*4096 + 476 + 4, 3*4096 + 476 + 4} {
		copy(misplaced[at:], "000")
	}
	for name, test := range map[string]struct {
		data []byte
		says string // a fact, if there is one
	}{
		"nothing":              {nil, "0 bytes"},
		"without its checksum": {database, "a checksum"},
		"cut":                  {whole[:20001], "a checksum"},
		"text":                 {resealed(bytes.Repeat([]byte("no database"), 2048)), "invalid database"},
		"half a database":      {resealed(database[:12288]), "24576 bytes"},
		"garbage in its pages": {resealed(garbage), "damaged"},
		"no members":           {edited(t, func(tx *bbolt.Tx) error { return tx.Bucket(membersBucket).Delete(firstKey(tx, membersBucket)) }), "no members"},
		"other members":        {edited(t, in(membersBucket, "1", "{")), "members: unexpected end"},
		"no bucket of members": {edited(t, func(tx *bbolt.Tx) error { return tx.DeleteBucket(membersBucket) }), `no bucket "members"`},
		"no bucket of keys":    {edited(t, func(tx *bbolt.Tx) error { return tx.DeleteBucket(keyBucket) }), `no bucket "key"`},
		"a short revision":     {edited(t, in(keyBucket, "1", "")), "a revision"},
		"another separator":    {edited(t, in(keyBucket, strings.Repeat("1", 17), "")), "a revision"},
		"a negative revision":  {edited(t, in(keyBucket, "\xff234567_12345678", "")), "a revision"},
		"another mark":         {edited(t, in(keyBucket, "\x00234567_12345678x", "")), "a revision"},
		"a lost order":         {resealed(bytes.ReplaceAll(database, revisionKey(2), revisionKey(9))), "revision 3"},
		"a place outside":      {resealed(misplaced), ""},
		"not a key's record":   {edited(t, in(keyBucket, string(revisionKey(9)), "text")), "revision 9"},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := verified(t, test.data)
			if fact.Error(t, err, "verify", "snapshot /"); err == nil || test.says == "" {
				return
			}
			if fact.In(t, err.Error(), test.says); t.Failed() {
				t.Logf("%+v", info)
			}
		})
	}
}

func firstKey(tx *bbolt.Tx, bucket []byte) []byte {
	key, _ := tx.Bucket(bucket).Cursor().First()
	return key
}

func TestVerifyEachFlippedByte(t *testing.T) {
	whole := read(t, real37)
	for at := 0; at < len(whole); at += 97 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		if _, err := verified(t, damaged); err == nil {
			t.Errorf("byte %d", at)
		}
	}
}

// FuzzVerifySnapshot damages a snapshot. Any change, cut or addition is noticed.
func FuzzVerifySnapshot(f *testing.F) {
	whole := read(f, real36)
	f.Add(uint16(0), []byte("text"), uint16(len(whole)))
	f.Add(uint16(8192), bytes.Repeat([]byte{0xff}, 64), uint16(len(whole)))
	f.Add(uint16(4096+16), []byte{1, 0, 0, 0}, uint16(12288+sha256.Size))
	f.Add(uint16(len(whole)-1), []byte{0}, uint16(len(whole)))
	f.Add(uint16(20), []byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, at uint16, change []byte, size uint16) {
		data := append(bytes.Clone(whole), make([]byte, max(0, int(size)-len(whole)))...)[:size]
		copy(data[min(int(at), len(data)):], change)
		if info, err := verified(t, data); (err == nil) != bytes.Equal(data, whole) {
			t.Errorf("%+v, %v", info, err)
		}
	})
}
