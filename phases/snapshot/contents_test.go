// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// snapshotWith is a snapshot whose database also has these values, by their keys.
func snapshotWith(t *testing.T, values map[string]string) string {
	t.Helper()
	whole, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	phasetest.Fatal(t, err)
	path := filepath.Join(t.TempDir(), "db")
	phasetest.Fatal(t, os.WriteFile(path, whole[:len(whole)-sha256.Size], 0o600))
	db, err := bbolt.Open(path, 0o600, nil)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, db.Update(func(tx *bbolt.Tx) error {
		for i, key := range slices.Sorted(maps.Keys(values)) {
			record, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(values[key])})
			if err != nil {
				return err
			}
			revision := append(binary.BigEndian.AppendUint64(nil, uint64(100+i)), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
			if err := tx.Bucket([]byte("key")).Put(revision, record); err != nil {
				return err
			}
		}
		return nil
	}))
	phasetest.Fatal(t, db.Close())
	data, err := os.ReadFile(path)
	phasetest.Fatal(t, err)
	sum := sha256.Sum256(data)
	return string(data) + string(sum[:])
}

// stored is an object as an API server stores it.
func stored(t *testing.T, object interface{ Marshal() ([]byte, error) }) string {
	t.Helper()
	raw, err := object.Marshal()
	phasetest.Fatal(t, err)
	data, err := (&runtime.Unknown{Raw: raw}).Marshal()
	phasetest.Fatal(t, err)
	return string(protobufPrefix) + string(data)
}

func storedText(t *testing.T, name, text string) string {
	t.Helper()
	return stored(t, &corev1.ConfigMap{Data: map[string]string{name: text}})
}

// TestRestoreUnrecorded: what a record would say is taken from the database, before anything stops.
func TestRestoreUnrecorded(t *testing.T) {
	foreign := string(certs.EncodeCerts(fixture.Signed(t, fixture.Pair{}, "foreign", noon.AddDate(1, 0, 0)).Cert))
	version := func(t *testing.T, v string) string {
		t.Helper()
		return storedText(t, manifests.KubeadmConfigKey, "kubernetesVersion: "+v+"\n")
	}
	for name, c := range map[string]struct {
		values func(t *testing.T, ca string) map[string]string
		fails  []string // facts of the error
		says   []string
		silent []string // not in the question
	}{
		"this cluster's": {func(t *testing.T, ca string) map[string]string {
			t.Helper()
			return map[string]string{etcd.AuthenticationKey: storedText(t, "client-ca-file", ca), etcd.ClusterKey: version(t, "v1.37.0")}
		}, nil, nil, []string{"NOT CHECKED"}},
		"this cluster's, by the CA that Pods trust": {func(t *testing.T, ca string) map[string]string {
			t.Helper()
			return map[string]string{etcd.RootCAKey: storedText(t, "ca.crt", foreign+ca), etcd.ClusterKey: version(t, "v1.37.0")}
		}, nil, nil, []string{"NOT CHECKED"}},
		"as JSON": {func(_ *testing.T, _ string) map[string]string {
			return map[string]string{etcd.ClusterKey: `{"kind": "ConfigMap", "data": {"ClusterConfiguration": "kubernetesVersion: v1.38.0"}}`}
		}, []string{"v1.38.0"}, nil, nil},
		"another cluster's": {func(t *testing.T, _ string) map[string]string {
			t.Helper()
			return map[string]string{etcd.RootCAKey: storedText(t, "ca.crt", foreign)}
		}, []string{dir, "sha256:"}, nil, nil},
		"a newer Kubernetes": {func(t *testing.T, _ string) map[string]string {
			t.Helper()
			return map[string]string{etcd.ClusterKey: version(t, "v1.38.0")}
		}, []string{"v1.38.0", "v1.37.2"}, nil, nil},
		"a lost key": {func(*testing.T, string) map[string]string {
			return map[string]string{"/registry/secrets/a/b": "k8s:enc:aescbc:v1:new:x", "/registry/secrets/a/c": "k8s:enc:secretbox:v1:lost:x"}
		}, []string{"secretbox:lost", "EncryptionConfiguration"}, nil, nil},
		"known keys": {func(*testing.T, string) map[string]string {
			return map[string]string{"/registry/secrets/a/b": "k8s:enc:aescbc:v1:new:x", "/registry/secrets/a/c": "k8s:enc:kms:v2:vault:x"}
		}, nil, []string{"NOT CHECKED", "aescbc:new, kms:vault", ".db.json"}, nil},
		"nothing is known": {func(*testing.T, string) map[string]string { return nil }, nil, []string{"NOT CHECKED", ".db.json", "CA"}, []string{"keys here"}},
		"encrypted ConfigMaps": {func(*testing.T, string) map[string]string {
			return map[string]string{etcd.RootCAKey: "k8s:enc:aescbc:v1:new:x"}
		}, nil, []string{"NOT CHECKED", "CA"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, path := alone(t)
			s.Put(t, path, snapshotWith(t, c.values(t, s.Get(t, "/etc/kubernetes/pki/ca.crt"))))
			s.Remove(t, snapshots.RecordPath(path))
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			if len(c.fails) > 0 {
				if err == nil {
					t.Fatal("no error")
				}
				fact.In(t, fixture.Told(err), c.fails...)
				return
			}
			phasetest.Fatal(t, err)
			fact.In(t, r.Summary(), c.says...)
			fact.NotIn(t, r.Summary(), c.silent...)
		})
	}
}

// namespaced is an API whose Namespace kube-system has this UID.
type namespaced struct {
	cluster.Cluster
	uid types.UID
}

func (n namespaced) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if ns, is := obj.(*corev1.Namespace); is {
		ns.UID = n.uid
		return true, nil
	}
	return n.Cluster.Get(ctx, obj)
}

// TestRestoreOfClone: clusters with the same CA are told apart. The operator decides, since the wrong snapshot may have been restored
// before.
func TestRestoreOfClone(t *testing.T) {
	s, _, path := alone(t)
	staging := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "of-staging"}}
	s.Put(t, path, snapshotWith(t, map[string]string{etcd.NamespaceKey: stored(t, staging)}))
	s.Remove(t, snapshots.RecordPath(path))
	plain := s.Cluster
	for uid, fails := range map[types.UID]bool{"of-staging": false, "of-production": true} {
		s.Cluster = namespaced{plain, uid}
		r, err := NewRestore(t.Context(), s.Env, Source{File: path})
		phasetest.Fatal(t, err)
		err = r.preflight(t.Context(), s.Env)
		if !fails {
			phasetest.Fatal(t, err)
			continue
		}
		if err == nil {
			t.Fatal("no error")
		}
		fact.In(t, fixture.Told(err), fault.EtcdSnapshotCluster, "of-staging", "of-production")
		s.Config.IgnorePreflightErrors = []string{strings.ToLower(fault.EtcdSnapshotCluster)}
		phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
		s.Config.IgnorePreflightErrors = nil
	}
}

// TestRestoreOfOtherID: without both UIDs, another ID of etcd's cluster is in the question. So is a snapshot of a full etcd, or a
// corrupt one.
func TestRestoreOfOtherID(t *testing.T) {
	s, _, path := alone(t)
	changeRecord(t, s, path, func(r *snapshots.Record) {
		r.ClusterID, r.Alarms, r.Encryption[0].Fingerprints = "def", []string{"CORRUPT", "NOSPACE"}, nil
	})
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	fact.In(t, r.Summary(), "NOT CHECKED", "abc", "def", "CORRUPT", "NOSPACE", "`slipway etcd defrag`")
}
