// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
)

// Record describes the upgrade that made a backup.
type Record struct {
	// Node is the node's name, To the version of the upgrade.
	Node string `json:"node"`
	To   string `json:"to"`
	// CA has the hashes of the cluster's CAs (sha256:HEX of the public key), separated by commas. Earlier releases didn't record it.
	CA string `json:"ca,omitempty"`
	// EtcdCluster is the ID of the etcd cluster in hexadecimal, empty without etcd on this host.
	EtcdCluster string `json:"etcdCluster,omitempty"`
	// ClusterConfiguration and KubeletConfiguration are the configurations the cluster stored before; empty on workers.
	ClusterConfiguration string `json:"clusterConfiguration,omitempty"`
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
	// Written maps the names of replaced files to the hashes of their new content (SHA-256, in hexadecimal).
	Written map[string]string `json:"written,omitempty"`
	// Completed is when the upgrade was completed, in the record of its last directory.
	Completed time.Time `json:"completed,omitzero"`
}

// complete adds a later record's values, as not every phase records all. Files to put back and the cluster stay the first run's.
func (r *Record) complete(later Record) {
	r.Node, r.To = cmp.Or(r.Node, later.Node), cmp.Or(r.To, later.To)
	r.EtcdCluster = cmp.Or(r.EtcdCluster, later.EtcdCluster)
	r.ClusterConfiguration = cmp.Or(r.ClusterConfiguration, later.ClusterConfiguration)
	r.KubeletConfiguration = cmp.Or(r.KubeletConfiguration, later.KubeletConfiguration)
	r.Completed = later.Completed
}

func HashOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// another reports whether two records are of different clusters, which may share a CA. A missing value matches any. restored
// means that a restore in between may have made a new etcd cluster.
func (r *Record) another(other Record, restored bool) bool {
	if !restored && r.EtcdCluster != "" && other.EtcdCluster != "" && r.EtcdCluster != other.EtcdCluster {
		return true
	}
	return r.CA != "" && other.CA != "" && !slices.ContainsFunc(strings.Split(r.CA, ","), func(pin string) bool {
		return slices.Contains(strings.Split(other.CA, ","), pin)
	})
}

func readRecord(h host.Host, dir string) (r Record, err error) {
	path := filepath.Join(dir, RecordFile)
	data, err := host.ReadIfExists(h, path)
	if err != nil || data == nil {
		return r, err
	}
	return r, errors.Wrap(yaml.UnmarshalStrict(data, &r), path)
}

// Complete records the end of the upgrade behind b: the next run begins another one, even to the same version. It writes nothing
// if that's recorded, or if kubeadm made the backup.
func (b *Backup) Complete(h host.Host) error {
	if !b.Completed.IsZero() {
		return nil
	}
	return b.setCompleted(h, h.Now().UTC().Truncate(time.Second))
}

// Reopen undoes Complete when a rollback begins.
func (b *Backup) Reopen(h host.Host) error {
	if b.Completed.IsZero() {
		return nil
	}
	return b.setCompleted(h, time.Time{})
}

func (b *Backup) setCompleted(h host.Host, at time.Time) error {
	if b.last == "" {
		return nil
	}
	record, err := readRecord(h, b.last)
	if err != nil {
		return err
	}
	record.Completed = at
	data, err := yaml.Marshal(record)
	if err != nil {
		return err
	}
	if _, err := (ownership.File{Path: filepath.Join(b.last, RecordFile), Data: data, Mode: 0o600}).Write(h); err != nil {
		return err
	}
	b.Completed = at
	return nil
}
