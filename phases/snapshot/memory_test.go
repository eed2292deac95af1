// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	maxMemory  = 64 << 20 // bytes
	memoryTask = "SLIPWAY_SNAPSHOT_TEST"
	// The database has this many objects of 2 KiB, each changed once.
	objects, objectSize = 16_000, 2 << 10
)

// TestMemory saves and prunes a database several times as large as the memory that may be used, in processes of their own.
func TestMemory(t *testing.T) {
	if task := os.Getenv(memoryTask); task != "" {
		debug.SetGCPercent(400) // as cmd/slipway does
		saveLarge(t, task == "sealed", os.Getenv(memoryTask+"_FILE"))
		checkMemory(t, task)
		return
	}
	file := filepath.Join(t.TempDir(), "large.db")
	makeLarge(t, file)
	for _, task := range []string{"plain", "sealed"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
		cmd.Env = append(os.Environ(), memoryTask+"="+task, memoryTask+"_FILE="+file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", task, err, out)
		}
		t.Logf("%s: %s", cmd.ProcessState.UserTime(), out)
	}
}

func saveLarge(t *testing.T, seal bool, file string) {
	t.Helper()
	s, m := plane(t, "")
	s.Etcd = &streamed{members: m, path: file}
	o := Options{Dir: dir}
	var with snapshots.Identities
	if seal {
		o.Recipients, with = keyPair(t)
	}
	path, err := Save(t.Context(), s.Env, o)
	phasetest.Fatal(t, err)
	v, err := Verify(s.Env, path, with)
	if err != nil || v.Keys != objects || v.Revision != 2*objects || v.Opened != seal {
		t.Errorf("%+v, %v", v, err)
	}
}

// streamed is an etcd whose snapshots are a database in a file and its hash.
type streamed struct {
	*members
	path string
}

func (m *streamed) Snapshot(_ context.Context, _ string, w io.Writer) (etcd.SnapshotInfo, error) {
	f, err := os.Open(m.path)
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), f); err != nil {
		return etcd.SnapshotInfo{}, err
	}
	_, err = w.Write(sum.Sum(nil))
	return etcd.SnapshotInfo{}, err
}

// makeLarge makes a database of etcd.
func makeLarge(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	phasetest.Fatal(t, err)
	defer db.Close()
	phasetest.Fatal(t, db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{"key", "meta", "members", "members_removed", "cluster"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte("members")).Put([]byte("1"), []byte(`{"id":1,"name":"cp-1","peerURLs":["`+phasetest.OwnPeer+`"]}`))
	}))
	value := bytes.Repeat([]byte("x"), objectSize)
	for first := 0; first < 2*objects; first += 4000 {
		phasetest.Fatal(t, db.Update(func(tx *bbolt.Tx) error {
			keys := tx.Bucket([]byte("key"))
			keys.FillPercent = 0.9 // as etcd
			for i := first; i < first+4000; i++ {
				record, err := proto.Marshal(&mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/configmaps/default/object-%06d", i%objects), Value: value})
				if err != nil {
					return err
				}
				revision := append(binary.BigEndian.AppendUint64(nil, uint64(i+1)), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
				if err := keys.Put(revision, record); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// checkMemory looks at the process's peak so far.
func checkMemory(t *testing.T, task string) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	phasetest.Fatal(t, err)
	var peak int64 // in KiB
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
	}
	t.Logf("%s takes %d MiB", task, peak>>10)
	if peak == 0 || peak<<10 > maxMemory {
		t.Errorf("that is more than %d MiB", maxMemory>>20)
	}
}
