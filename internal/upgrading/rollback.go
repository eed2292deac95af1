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

// Progress is how far the last rollback of this node has come. It is empty if there was none.
type Progress struct {
	// Began is when the upgrade began that is rolled back.
	Began time.Time `json:"began,omitzero"`
	// Snapshot is the file that etcd's data is restored from, empty for a rollback that leaves etcd alone. Aside is where the
	// data is that etcd had before, and Revision its last revision, 0 if that is unknown. Restored says that the new data is in
	// place.
	Snapshot string `json:"snapshot,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Aside    string `json:"aside,omitempty"`
	Restored bool   `json:"restored,omitempty"`
	// Finished is the end of a rollback that is complete.
	Finished time.Time `json:"finished,omitzero"`
}

// ReadProgress reads what the last rollback has written below root.
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

// Concerns reports whether the progress is that of a rollback of the upgrade that made b.
func (p Progress) Concerns(b *Backup) bool { return p.Began.Equal(b.Began) }

// NodeBefore returns what this node was before the upgrade that made b. The configuration is the one that the backup has:
// the API may be down. Without it, as in a backup of kubeadm's, the cluster is asked, and then the defaults have to do.
func NodeBefore(ctx context.Context, api cluster.Cluster, h host.Host, b *Backup, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	var warnings []string
	stored := []byte(b.ClusterConfiguration)
	if len(stored) == 0 {
		var err error
		if stored, err = joining.StoredConfiguration(ctx, api); err != nil {
			warnings = []string{"cannot read the cluster's configuration, and the backup does not have it; using the defaults and this host's files: " + err.Error()}
			stored = config.DefaultCluster()
		}
	}
	if !thisnode.IsControlPlane(h) && b.Manifests[manifests.APIServerName] == "" {
		self.ControlPlane = nil
	}
	opts.Version, opts.Placeholders, opts.AnyVersion = b.From, true, true
	n, more, err := config.LoadCluster(stored, nil, nil, self, opts)
	if err != nil {
		return nil, nil, err
	}
	n.Upgrade = &config.Upgrade{Version: n.Cluster.KubernetesVersion, From: b.To, Etcd: true}
	return n, append(warnings, more...), nil
}
