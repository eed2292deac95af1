// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrading works out an upgrade without running it. Look reads a cluster's versions into a State; State.Offers lists the
// versions it can move to, and State.Steps the steps there. Source loads the node's configuration before and after, Plan is the
// output of `upgrade plan`, and Backup and Record are the starting points of a rollback. phases/upgrade runs the upgrade.
package upgrading

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// Source is what this node's configuration, before and after an upgrade, is read from.
type Source struct {
	API     cluster.Cluster
	Host    host.Host
	Options config.Options
	// Say says that Node waits for the API server.
	Say func(format string, args ...any)
}

// Node returns this node as it should be after self's upgrade: to self's version, or else to the version in the cluster's
// configuration.
func (s Source) Node(ctx context.Context, self *config.UpgradeSelf) (*config.Node, []string, error) {
	if thisnode.IsControlPlane(s.Host) {
		if err := s.awaitServer(ctx, self.Timeouts); err != nil {
			return nil, nil, adviseRollback(err)
		}
	}
	stored, err := joining.StoredConfiguration(ctx, s.API)
	if err != nil {
		return nil, nil, err
	}
	upgrade := self.Upgrade
	if upgrade.From, err = config.StoredVersion(stored); err != nil {
		return nil, nil, err
	}
	components, err := readComponents(ctx, s.API, upgrade.First)
	if err != nil {
		return nil, nil, err
	}
	s.Options.Version, s.Options.Placeholders = self.Version, true
	n, warnings, err := config.LoadCluster(stored, components.kubelet, components.kubeProxy, current(s.Host, self), s.Options)
	if err != nil {
		return nil, warnings, err
	}
	upgrade.Version = n.Cluster.KubernetesVersion
	upgrade.Stored = append(components.texts, config.StoredText{ConfigMap: manifests.KubeadmConfigMap, Key: manifests.KubeadmConfigKey, Text: string(stored)})
	return n.With(func(n *config.Node) { n.Upgrade = &upgrade }), warnings, nil
}

// sayAfter is how long a wait goes on silently: most end at once.
const sayAfter = 2 * time.Second

// awaitServer waits for the API server: at its start, it refuses even administrators for a moment. An interrupted upgrade may
// have just restarted it, or this host has just booted, so it gets as long as it would have had then.
func (s Source) awaitServer(ctx context.Context, limits *config.Timeouts) error {
	limit, whole := limits.KubernetesAPICall.Duration, limits.UpgradeManifests.Duration
	left := min(whole, whole-s.Host.Now().Sub(serverTold(ctx, s.Host))) // the file may be dated ahead of the clock
	if left > limit {
		limit = left
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	late := time.AfterFunc(sayAfter, func() { s.Say("Waiting for the API server, up to %s", limit.Round(time.Second)) })
	defer late.Stop()
	return s.API.Ready(ctx)
}

// serverTold is when the kubelet was last told to run the API server: its static Pod was written, or the kubelet started.
func serverTold(ctx context.Context, h host.Host) (at time.Time) {
	if manifest, err := h.Stat(thisnode.APIServerManifest); err == nil {
		at = manifest.ModTime()
	}
	if unit, err := h.Unit(ctx, host.KubeletUnit); err == nil && unit.ActiveSince.After(at) {
		at = unit.ActiveSince
	}
	return at
}

// adviseRollback adds the remedy for an API server that doesn't serve.
func adviseRollback(err error) error {
	if fault.Remedy(err) != "" && !errors.Is(err, syscall.ECONNREFUSED) {
		return err // such as expired credentials
	}
	return fault.WithRemedy(err, "`slipway diagnose` says what is wrong with it; if an upgrade broke it, "+
		"`slipway upgrade rollback` restores the previous version")
}

// current returns this node as it is, with the settings of this run.
func current(h host.Host, self *config.UpgradeSelf) *config.JoinConfiguration {
	c := thisnode.Current(h)
	if !thisnode.IsControlPlane(h) {
		c.ControlPlane = nil
	}
	r := &c.NodeRegistration
	r.ImagePullPolicy, r.ImagePullSerial, r.IgnorePreflightErrors = self.ImagePullPolicy, self.ImagePullSerial, self.IgnorePreflightErrors
	c.SkipPhases, c.Patches, c.Timeouts = self.SkipPhases, self.Patches, thisnode.WithStartupTime(h, self.Timeouts)
	return c
}

// components holds the stored configurations of the kubelets and of kube-proxy; nil means generate it. texts are as stored.
type components struct {
	kubelet, kubeProxy []byte
	texts              []config.StoredText
}

// readComponents reads the stored configurations. The first node regenerates any that an earlier version generated, with the new
// version's defaults. The others use the result: some defaults depend on the host. kube-proxy's don't count if it was deleted.
func readComponents(ctx context.Context, api cluster.Cluster, first bool) (c components, err error) {
	if c.kubelet, err = c.read(ctx, api, manifests.KubeletConfigMap, "kubelet", first); err != nil || !first {
		return c, err // a worker mustn't read the other ConfigMap, and needs only this
	}
	c.kubeProxy, err = c.read(ctx, api, manifests.KubeProxyConfigMap, "config.conf", first)
	if c.kubeProxy != nil && cluster.LacksKubeProxy(ctx, api) {
		c.kubeProxy = nil
	}
	return c, err
}

func (c *components) read(ctx context.Context, api cluster.Cluster, name, key string, regenerate bool) ([]byte, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
	}
	found, err := api.Get(ctx, cm)
	c.texts = append(c.texts, config.StoredText{ConfigMap: name, Key: key, Text: cm.Data[key]})
	if err != nil || !found || regenerate && manifests.Generated(cm) {
		return nil, errors.WithMessage(err, "the cluster's settings of a component")
	}
	return []byte(cm.Data[key]), nil
}

// Progress is how far the last rollback of this node got; empty if there was none.
type Progress struct {
	// Began and Ended are copied from the backup of the upgrade to roll back. Earlier releases didn't write Ended.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Snapshot is the file to restore etcd's data from, empty for a rollback that leaves etcd alone. Aside is where a restore moves
	// etcd's current data, and Revision its last revision, 0 if unknown. Cluster is the ID of the new data's cluster. Restored means
	// that this data is in place.
	Snapshot string    `json:"snapshot,omitempty"`
	Revision int64     `json:"revision,omitempty"`
	OldData  string    `json:"aside,omitempty"`
	Cluster  string    `json:"cluster,omitempty"`
	Restored bool      `json:"restored,omitempty"`
	Finished time.Time `json:"finished,omitzero"`
}

// ReadProgress reads the last rollback's progress below root.
func ReadProgress(h host.Host, root string) (p Progress, err error) {
	_, err = ownership.ReadYAML(h, filepath.Join(root, thisnode.RollbackFile), &p)
	return p, err
}

// Write stores the progress for the next run.
func (p Progress) Write(h host.Host, root string) error {
	return ownership.WriteYAML(h, filepath.Join(root, thisnode.RollbackFile), p)
}

// Finish ends a rollback that hasn't ended yet: now or, if the clock was ahead during the upgrade, at the time of the newest backup. The
// next one is still later.
func (p *Progress) Finish(now, lastBackup time.Time) {
	if !p.Finished.IsZero() {
		return
	}
	p.Finished = now.UTC().Truncate(time.Second)
	if lastBackup.After(p.Finished) {
		p.Finished = lastBackup
	}
}

// IsOf reports whether this is the progress of rolling back b's upgrade. It isn't if that upgrade has replaced static Pods
// again since, which undid the rollback's work.
func (p Progress) IsOf(b *Backup) bool {
	return p.Began.Equal(b.Began) && (p.Ended.IsZero() || p.Ended.Equal(b.Ended))
}

// NodeBefore returns this node as it was before b's upgrade. The configuration comes from the backup, as the API may be down, or
// else, for backups without a record, such as kubeadm's, from the cluster or the defaults.
func (s Source) NodeBefore(ctx context.Context, b *Backup, self *config.JoinConfiguration) (*config.Node, []string, error) {
	if b.damaged != nil {
		return nil, nil, b.damaged
	}
	var warnings []string
	stored, assumed := []byte(b.ClusterConfiguration), false
	if len(stored) == 0 {
		var err error
		if stored, err = joining.StoredConfiguration(ctx, s.API); err != nil {
			assumed, warnings = true, []string{"cannot read the cluster's configuration, and the backup does not have it; using the defaults and this host's files: " + err.Error()}
			stored = config.DefaultCluster()
		}
	}
	if !wasControlPlane(s.Host, b) {
		self.ControlPlane = nil
	}
	s.Options.Version, s.Options.Placeholders, s.Options.AnyVersion = b.From, true, true
	n, more, err := config.LoadCluster(stored, nil, nil, self, s.Options)
	if err != nil {
		return nil, nil, err
	}
	_, missing := s.Host.Lstat(n.Paths.StaticPod(manifests.EtcdName))
	return n.With(func(n *config.Node) {
		if assumed && missing != nil && b.Manifests[manifests.EtcdName] == "" {
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
