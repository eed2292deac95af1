// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcdutl compares Slipway's restore with that of etcd's own library, which starts too slowly for the program. It's a
// separate module, so that the product needs none of it.
package etcdutl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

const name, peerURL = "cp-1", "https://192.0.2.1:2380"

var snapshots = []string{"../../internal/etcd/testdata/snapshot-3.6.db", "../../internal/etcd/testdata/snapshot-3.7.db"}

// TestRestore: both make the same data from a snapshot, apart from the IDs, and from etcdutl's remains of the earlier cluster.
func TestRestore(t *testing.T) {
	for _, path := range snapshots {
		ours, theirs := filepath.Join(t.TempDir(), "member"), t.TempDir()
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: path, Name: name, OutputDataDir: theirs, PeerURLs: []string{peerURL}, InitialCluster: name + "=" + peerURL,
			InitialClusterToken: "t", RevisionBump: etcd.RevisionBump, MarkCompacted: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.Mkdir(ours, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Restore(t.Context(), f, ours, name, peerURL, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(describe(t, filepath.Join(theirs, "member")), describe(t, ours)); diff != "" {
			t.Errorf("%s (-etcdutl +slipway):\n%s", path, diff)
		}
	}
}

// TestVerify: both report the same of a snapshot.
func TestVerify(t *testing.T) {
	for _, path := range snapshots {
		want, err := snapshot.NewV3(zap.NewNop()).Status(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := etcd.VerifySnapshot(f)
		if err != nil || got.Revision != want.Revision || got.Keys != want.TotalKey || got.Version != want.Version {
			t.Errorf("%s: %+v, %v; etcdutl %+v", path, got, err, want)
		}
	}
}

// describe returns the contents of a member's directory, without its IDs.
func describe(t *testing.T, dir string) map[string]string {
	t.Helper()
	told := map[string]string{}
	w, err := wal.OpenForRead(zap.NewNop(), filepath.Join(dir, "wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	metadata, state, entries, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := etcd.ReadData(head(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	anonymous := strings.NewReplacer(
		fmt.Sprintf("%x", ids.Member), "MEMBER", fmt.Sprint(ids.Member), "MEMBER", fmt.Sprint(ids.Cluster), "CLUSTER",
	).Replace
	told["metadata"], told["state"] = fmt.Sprint(len(metadata) > 0), anonymous(text(t, state))
	for i, e := range entries {
		var change raftpb.ConfChange
		if err := proto.Unmarshal(e.GetData(), &change); err != nil {
			t.Fatal(err)
		}
		told[fmt.Sprintf("entry %d", i)] = anonymous(fmt.Sprint(e.GetIndex(), e.GetTerm(), e.GetType(), change.GetType(), change.GetNodeId(), string(change.GetContext())))
	}
	kept, err := snap.New(zap.NewNop(), filepath.Join(dir, "snap")).Load()
	if err != nil {
		t.Fatal(err)
	}
	var old struct{ Root any }
	if err := json.Unmarshal(kept.GetData(), &old); err != nil {
		t.Fatal(err)
	}
	members, err := json.MarshalIndent(old, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	told["snapshot"], told["members"] = anonymous(text(t, kept.GetMetadata())), anonymous(string(members))
	records(t, filepath.Join(dir, "snap", "db"), func(bucket, key, value string) {
		if bucket+"/"+key != "meta/confState" { // etcdutl leaves the voters of the earlier cluster
			told[anonymous(fmt.Sprintf("%s/%q", bucket, key))] = anonymous(fmt.Sprintf("%q", value))
		}
	})
	return told
}

func head(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "wal", "0000000000000000-0000000000000000.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return data[:etcd.DataHead]
}

func text(t *testing.T, m proto.Message) string {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func records(t *testing.T, path string, each func(bucket, key, value string)) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
			each(string(bucket), "", "")
			return b.ForEach(func(key, value []byte) error { each(string(bucket), string(key), string(value)); return nil })
		})
	})
	if err != nil {
		t.Error(err)
	}
}
