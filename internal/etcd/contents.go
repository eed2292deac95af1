// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"maps"
	"slices"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// The keys of objects that say which Kubernetes cluster a database is of, and how it's configured.
const (
	NamespaceKey      = "/registry/namespaces/kube-system"
	AuthenticationKey = "/registry/configmaps/kube-system/extension-apiserver-authentication"
	RootCAKey         = "/registry/configmaps/kube-system/kube-root-ca.crt"
	ClusterKey        = "/registry/configmaps/kube-system/kubeadm-config"
	KubeletKey        = "/registry/configmaps/kube-system/kubelet-config"
	KubeProxyKey      = "/registry/configmaps/kube-system/kube-proxy"
)

func isContentsKey(key string) bool {
	switch key {
	case NamespaceKey, AuthenticationKey, RootCAKey, ClusterKey, KubeletKey, KubeProxyKey:
		return true
	}
	return false
}

// Contents is what a database says about the Kubernetes cluster that it's of.
type Contents struct {
	// Objects are the values of the keys above that exist, as the API server has stored them.
	Objects map[string][]byte
	// EncryptedWith names the keys that values are encrypted with, as PROVIDER:NAME, in order.
	EncryptedWith []string
	// Alarms are the kinds of alarms that are raised, in order.
	Alarms []string
}

// contentsReader gathers Contents from a database's records, in order of revision: the last record of a key counts.
type contentsReader struct {
	objects map[string][]byte
	names   []string
	// encrypted has the position in names, by the hash of the value's key: a cluster may have many Secrets.
	encrypted map[uint64]int
}

func newContentsReader() *contentsReader {
	return &contentsReader{objects: map[string][]byte{}, encrypted: map[uint64]int{}}
}

func (c *contentsReader) add(hash uint64, key, value []byte, deleted bool) {
	if isContentsKey(string(key)) {
		delete(c.objects, string(key))
		if !deleted {
			c.objects[string(key)] = bytes.Clone(value)
		}
	}
	name := encryptionOf(value)
	if deleted || name == nil {
		delete(c.encrypted, hash)
		return
	}
	at := slices.IndexFunc(c.names, func(have string) bool { return have == string(name) })
	if at < 0 {
		at = len(c.names)
		c.names = append(c.names, string(name))
	}
	c.encrypted[hash] = at
}

var encryptedPrefix = []byte("k8s:enc:")

// encryptionOf returns the provider and the key's name of an encrypted value, PROVIDER:v1:NAME; nil for any other.
func encryptionOf(value []byte) []byte {
	rest, encrypted := bytes.CutPrefix(value, encryptedPrefix)
	if !encrypted {
		return nil
	}
	end := 0
	for range 3 {
		next := bytes.IndexByte(rest[end:], ':')
		if next < 0 {
			return nil
		}
		end += next + 1
	}
	return rest[:end-1]
}

func (c *contentsReader) contents(tx *bbolt.Tx) (found Contents, err error) {
	if len(c.objects) > 0 {
		found.Objects = c.objects
	}
	for _, at := range slices.Sorted(maps.Values(c.encrypted)) {
		parts := bytes.SplitN([]byte(c.names[at]), []byte{':'}, 3) // the one in the middle is the format's version
		if name := string(parts[0]) + ":" + string(parts[2]); !slices.Contains(found.EncryptedWith, name) {
			found.EncryptedWith = append(found.EncryptedWith, name)
		}
	}
	slices.Sort(found.EncryptedWith)
	found.Alarms, err = storedAlarms(tx)
	return found, err
}

// storedAlarms returns the kinds of the stored alarms.
func storedAlarms(tx *bbolt.Tx) (kinds []string, err error) {
	bucket := tx.Bucket(alarmBucket)
	if bucket == nil {
		return nil, nil
	}
	err = visit(bucket, func(key, _ []byte) error {
		var alarm pb.AlarmMember
		err := proto.Unmarshal(key, &alarm)
		if kind := alarm.GetAlarm().String(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		return errors.Wrapf(err, "bucket %s", alarmBucket)
	})
	slices.Sort(kinds)
	return kinds, err
}
