// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/json"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
)

// protobufPrefix begins the values that an API server stores as protobuf, which is its default. JSON is the other form.
var protobufPrefix = []byte("k8s\x00")

// decodeStored decodes an object as an API server has stored it. found is false if it isn't there, or encrypted.
func decodeStored(c etcd.Contents, key string, into interface{ Unmarshal(data []byte) error }) (found bool, err error) {
	value := c.Objects[key]
	switch {
	case len(value) == 0 || bytes.HasPrefix(value, []byte("k8s:enc:")):
		return false, nil
	case value[0] == '{':
		return true, errors.Wrap(json.Unmarshal(value, into), key)
	case !bytes.HasPrefix(value, protobufPrefix):
		return false, errors.Errorf("%s is neither protobuf nor JSON", key)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(value[len(protobufPrefix):]); err != nil {
		return false, errors.Wrap(err, key)
	}
	return true, errors.Wrap(into.Unmarshal(envelope.Raw), key)
}

// textIn returns a text from a stored ConfigMap; empty if it isn't there or can't be read.
func textIn(c etcd.Contents, key, name string) string {
	var stored corev1.ConfigMap
	if found, err := decodeStored(c, key, &stored); !found || err != nil {
		return ""
	}
	return stored.Data[name]
}

// uidIn returns the UID of Namespace kube-system, which a cluster keeps as long as it lives.
func uidIn(c etcd.Contents) string {
	var stored corev1.Namespace
	if found, err := decodeStored(c, etcd.NamespaceKey, &stored); !found || err != nil {
		return ""
	}
	return string(stored.UID)
}

// recordOf returns the facts of a record that the database itself has. Its API server's CA is in one object, the CA that Pods trust in
// another.
func recordOf(c etcd.Contents) snapshots.Record {
	r := snapshots.Record{ClusterUID: uidIn(c), Authorities: map[string][]string{}}
	for _, text := range []string{textIn(c, etcd.AuthenticationKey, "client-ca-file"), textIn(c, etcd.RootCAKey, "ca.crt")} {
		list, err := certs.ParseCerts([]byte(text))
		if err != nil {
			continue // without any, there's a doubt
		}
		for _, ca := range list {
			r.Authorities[certs.CA] = append(r.Authorities[certs.CA], certs.PublicKeyPin(ca))
		}
	}
	var stored struct {
		Version string `json:"kubernetesVersion"`
	}
	if yaml.Unmarshal([]byte(textIn(c, etcd.ClusterKey, manifests.KubeadmConfigKey)), &stored) == nil {
		r.Kubernetes = stored.Version
	}
	for _, key := range c.EncryptedWith { // some objects each: all of them are needed
		r.Encryption = append(r.Encryption, snapshots.Encryption{Keys: []string{key}})
	}
	return r
}
