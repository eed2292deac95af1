// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"context"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// rollbackFile is where a rollback keeps its progress, beside the backups.
const rollbackFile = "slipway-rollback.yaml"

// Progress is how far the last rollback of this node got; empty if there was none.
type Progress struct {
	// Began and Ended are copied from the backup of the upgrade to roll back. Earlier releases didn't write Ended.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Snapshot is the file to restore etcd's data from, empty for a rollback that leaves etcd alone. Aside is where a restore moves
	// etcd's current data, and Revision its last revision, 0 if unknown. Restored means the new data is in place.
	Snapshot string    `json:"snapshot,omitempty"`
	Revision int64     `json:"revision,omitempty"`
	Aside    string    `json:"aside,omitempty"`
	Restored bool      `json:"restored,omitempty"`
	Finished time.Time `json:"finished,omitzero"`
}

// ReadProgress reads the last rollback's progress below root.
func ReadProgress(h host.Host, root string) (p Progress, err error) {
	path := filepath.Join(root, rollbackFile)
	data, err := host.ReadIfExists(h, path)
	if err != nil || data == nil {
		return p, err
	}
	return p, errors.Wrap(yaml.UnmarshalStrict(data, &p), path)
}

// Write stores the progress for the next run.
func (p Progress) Write(h host.Host, root string) error {
	data, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	_, err = ownership.File{Path: filepath.Join(root, rollbackFile), Data: data, Mode: 0o600}.Write(h)
	return err
}

// Concerns reports whether this is the progress of rolling back b's upgrade. It isn't if that upgrade has replaced static Pods
// again since, which undid the rollback's work.
func (p Progress) Concerns(b *Backup) bool {
	return p.Began.Equal(b.Began) && (p.Ended.IsZero() || p.Ended.Equal(b.Ended))
}

// NodeBefore returns this node as it was before b's upgrade. The configuration comes from the backup, as the API may be down, or
// else, for backups without one, such as kubeadm's, from the cluster or the defaults.
func NodeBefore(ctx context.Context, api cluster.Cluster, h host.Host, b *Backup, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	var warnings []string
	stored, assumed := []byte(b.ClusterConfiguration), false
	if len(stored) == 0 {
		var err error
		if stored, err = joining.StoredConfiguration(ctx, api); err != nil {
			assumed, warnings = true, []string{"cannot read the cluster's configuration, and the backup does not have it; using the defaults and this host's files: " + err.Error()}
			stored = config.DefaultCluster()
		}
	}
	if !wasControlPlane(h, b) {
		self.ControlPlane = nil
	}
	opts.Version, opts.Placeholders, opts.AnyVersion = b.From, true, true
	n, more, err := config.LoadCluster(stored, nil, nil, self, opts)
	if err != nil {
		return nil, nil, err
	}
	_, local := thisnode.StaticPod(h, thisnode.StaticPodPath(n, manifests.EtcdName))
	return n.With(func(n *config.Node) {
		if assumed && !local && b.Manifests[manifests.EtcdName] == "" {
			n.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}} // by default it's local
		}
		n.Upgrade = &config.Upgrade{Version: n.Cluster.KubernetesVersion, From: b.To, Etcd: true}
	}), append(warnings, more...), nil
}

// wasControlPlane reports whether this node is a control plane, even without its API server's static Pod. After a reset and a
// join as a worker, it may still have backups, but no admin.conf.
func wasControlPlane(h host.Host, b *Backup) bool {
	if thisnode.IsControlPlane(h) {
		return true
	}
	_, err := h.Lstat(config.DefaultAdminKubeconfig)
	return err == nil && b.Manifests[manifests.APIServerName] != ""
}
