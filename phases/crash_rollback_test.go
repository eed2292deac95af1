// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// crashingRollback goes back from 1.37 to 1.36 with etcd's data, crashingRollbackPlain without, and crashingRollbackNode on a
// worker.
var (
	crashingRollback = crashing{name: "upgrade-rollback", prepare: prepareRollback, run: rollBack(true),
		reads: "/var/lib/kubelet/config.yaml", renews: []string{leaseWrite}}
	crashingRollbackPlain = crashing{name: "upgrade-rollback-plain", prepare: prepareRollback, run: rollBack(false),
		reads: "/var/lib/kubelet/config.yaml", renews: []string{leaseWrite}}
	crashingRollbackNode = crashing{name: "upgrade-rollback-node", prepare: prepareRollbackNode, run: rollBack(false),
		reads: "/var/lib/kubelet/config.yaml", least: 3} // two files and the kubelet
)

// crashingUpgrade is the upgrade before some rollbacks.
var crashingUpgrade = applying(Init, UpgradeApply)

const (
	// hasEtcdData marks a host whose etcd must not start without data: it would begin an empty cluster.
	hasEtcdData     = "/var/fake/etcd-has-data"
	rollbackBackups = "/etc/kubernetes/tmp/"
	upgradeTime     = "2026-02-03-04-05-06"
	oldVersion      = "v1.36.4"
)

const rollbackCluster = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.4
encryptionAlgorithm: ECDSA-P256
etcd: {local: {dataDir: /var/lib/etcd}}
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}
`

// prepareRollback makes a control plane of today's version, whose backup says that it was an older one.
func prepareRollback(t *testing.T, s *scene) error {
	upgraded.Do(func() { upgraded.node, upgraded.err = upgradedPlane(t) })
	if upgraded.err != nil {
		return upgraded.err
	}
	s.api = ownAPI(s.root, nil)
	for path, obj := range upgraded.node.objects {
		s.api.Put(path, obj)
	}
	s.api.SpoilFirst(s.spoil)
	return upgraded.node.files.write(s.root)
}

// upgraded is made once, as oldPlane is.
var upgraded struct {
	sync.Once
	node oldNode
	err  error
}

func upgradedPlane(t *testing.T) (oldNode, error) {
	signed := rotatedPEM(t, "cp-1", time.Now().Add(time.Hour))
	return makeNode(func(h *lastingHost, endpoint string) error {
		if err := willMake(h.root, kubeletPEM, signed); err != nil {
			return err
		}
		if err := runInit(Init)(context.Background(), h, endpoint, io.Discard); err != nil {
			return err
		}
		return leaveBackup(h)
	})
}

// leaveBackup leaves what an upgrade from the older version backs up.
func leaveBackup(h *lastingHost) error {
	authority, err := os.ReadFile(h.root + "/etc/kubernetes/pki/ca.crt")
	if err != nil {
		return err
	}
	list, err := certs.ParseCerts(authority)
	if err != nil {
		return err
	}
	record, err := yaml.Marshal(upgrading.Record{Node: "cp-1", To: config.DefaultKubernetesVersion, CA: clusterPins(list), ClusterConfiguration: rollbackCluster})
	if err != nil {
		return err
	}
	snapshot, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		return err
	}
	old := map[string]string{
		upgrading.ManifestBackup + upgradeTime + "/upgrade.yaml": string(record),
		upgrading.EtcdBackup + upgradeTime + "/snapshot.db":      string(snapshot),
		upgrading.KubeletBackup + upgradeTime + "/upgrade.yaml":  string(record),
	}
	settings, err := os.ReadFile(h.root + "/var/lib/kubelet/config.yaml")
	if err != nil {
		return err
	}
	old[upgrading.KubeletBackup+upgradeTime+"/config.yaml"] = string(settings) + "maxPods: 99\n"
	old[upgrading.KubeletBackup+upgradeTime+"/kubeadm-flags.env"] = oldFlags
	data := h.root + "/var/lib/etcd/member/snap"
	if err := errors.Join(os.MkdirAll(data, 0o700), h.note(hasEtcdData), os.WriteFile(data+"/db", []byte("new"), 0o600)); err != nil {
		return err
	}
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		manifest, err := os.ReadFile(h.root + "/etc/kubernetes/manifests/" + component + ".yaml")
		if err != nil {
			return err
		}
		before := olderManifest(string(manifest))
		old[upgrading.ManifestBackup+upgradeTime+"/"+component+".yaml"] = before
		if err := h.note(imageMark(imageOf([]byte(before)))); err != nil {
			return err
		}
	}
	if err := h.startPods(); err != nil {
		return err
	}
	for path, text := range old {
		path = h.root + rollbackBackups + path
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// olderManifest is a static Pod as the older version has it.
func olderManifest(manifest string) string {
	if strings.Contains(manifest, "/etcd:") {
		image := imageOf([]byte(manifest))
		return strings.ReplaceAll(manifest, image, image[:strings.LastIndex(image, ":")]+":3.6.8-0")
	}
	return strings.ReplaceAll(manifest, config.DefaultKubernetesVersion, oldVersion)
}

// prepareRollbackNode makes a worker that was upgraded.
func prepareRollbackNode(t *testing.T, s *scene) error {
	err := prepareNode(Join, LookBack)(t, s)
	if err == nil {
		err = runUpgrade("node", UpgradeNode)(t.Context(), newLastingHost(s.root), s.api.Listener.Addr().String(), io.Discard)
	}
	s.writing = 0
	return err
}

// rollBack does what the command does, with --restore-etcd or without.
func rollBack(restore bool) runner {
	return func(ctx context.Context, h *lastingHost, endpoint string, say io.Writer) error {
		h.Has.Time = time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC) // so that the names of what runs set aside can be compared
		_, pod := h.Lstat("/etc/kubernetes/manifests/etcd.yaml")
		if _, data := h.Lstat("/var/lib/etcd/member"); pod == nil && data != nil {
			return errors.New("had the node been booted now, etcd would have begun a cluster without data")
		}
		limit := cmp.Or(h.limit, 30*time.Second)
		api := cluster.New(crashOptions(h, endpoint, thisnode.IsControlPlane(h), config.DefaultAdminKubeconfig, "/etc/kubernetes/kubelet.conf", limit))
		r, n, err := newRollback(ctx, api, h, h.members(), restore, say)
		if err != nil {
			return err
		}
		return crashRun(ctx, n, h, endpoint, say, r.Phases(), nil)
	}
}

// newRollback makes a rollback of what a host has kept. api is only asked for what the backup does not have.
func newRollback(ctx context.Context, api cluster.Cluster, h host.Host, members etcd.Etcd, restore bool, say io.Writer) (*Rollback, *config.Node, error) {
	progress, err := upgrading.ReadProgress(h, rollbackBackups)
	if err != nil {
		return nil, nil, err
	}
	backup, err := upgrading.LastBackup(h, rollbackBackups, progress)
	if err != nil {
		return nil, nil, err
	}
	n, _, err := upgrading.NodeBefore(ctx, api, h, backup, thisnode.Current(h), config.Options{})
	if err != nil {
		return nil, nil, err
	}
	env := &Env{Config: n, Host: h, Cluster: api, Etcd: members, UI: ui.NewLines(say, io.Discard)}
	r, err := NewRollback(ctx, env, RollbackOptions{Backup: backup, Progress: progress, RestoreEtcd: restore})
	return r, n, err
}
