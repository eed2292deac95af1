// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// TestContents: the last value of each key says which cluster a database is of, and which keys read it.
func TestContents(t *testing.T) {
	revision := int64(6)
	data := edited(t, func(tx *bbolt.Tx) error {
		put := func(key, value, mark string) error {
			revision++
			record, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value)})
			if err != nil {
				return err
			}
			return tx.Bucket(keyBucket).Put(append(revisionKey(revision), mark...), record)
		}
		for _, r := range [][3]string{
			{ClusterKey, "old"}, {ClusterKey, "new"},
			{RootCAKey, "gone"}, {RootCAKey, "", "t"},
			{"/registry/configmaps/shop/kubeadm-config", "another Namespace's"},
			{"/registry/secrets/a", "k8s:enc:aescbc:v1:former:x"}, {"/registry/secrets/a", "k8s:enc:secretbox:v1:now:x"},
			{"/registry/secrets/b", "k8s:enc:kms:v2:vault:x"}, {"/registry/secrets/c", "k8s:enc:secretbox:v1:now:y"},
			{"/registry/secrets/d", "k8s:enc:aescbc:v1:deleted:x"}, {"/registry/secrets/d", "", "t"},
			{"/registry/secrets/e", "k8s:enc:aescbc:v1:decrypted:x"}, {"/registry/secrets/e", "k8s\x00plain"},
			{"/registry/secrets/f", "k8s:enc:cut"},
		} {
			if err := put(r[0], r[1], r[2]); err != nil {
				return err
			}
		}
		alarm, err := proto.Marshal(&pb.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			return err
		}
		bucket, err := tx.CreateBucketIfNotExists(alarmBucket)
		if err != nil {
			return err
		}
		return bucket.Put(alarm, nil)
	})
	got, err := verified(t, data)
	if err != nil {
		t.Fatal(err)
	}
	want := Contents{Objects: map[string][]byte{ClusterKey: []byte("new")}, EncryptedWith: []string{"kms:vault", "secretbox:now"}, Alarms: []string{"NOSPACE"}}
	if diff := cmp.Diff(want, got.Contents); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
