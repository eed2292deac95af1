// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/upgrade"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// These scenarios go back from 1.37 to 1.36: with etcd's data, without, and on a worker.
var (
	rollbackScenario = phasetest.Scenario{Name: "upgrade-rollback", Prepare: upgraded.Begin, Run: rollBack(true),
		Reads: "/var/lib/kubelet/config.yaml", Renews: []string{phasetest.LeaseWrite}}
	rollbackPlainScenario = phasetest.Scenario{Name: "upgrade-rollback-plain", Prepare: upgraded.Begin, Run: rollBack(false),
		Reads: "/var/lib/kubelet/config.yaml", Renews: []string{phasetest.LeaseWrite}}
	rollbackNodeScenario = phasetest.Scenario{Name: "upgrade-rollback-node", Prepare: prepareRollbackNode, Run: rollBack(false),
		Reads: "/var/lib/kubelet/config.yaml", Least: 3} // two files and the kubelet
)

var upgradeScenario = phasetest.Applying(bootstrap.Init, upgrade.Apply)

const rollbackCluster = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.4
encryptionAlgorithm: ECDSA-P256
etcd: {local: {dataDir: /var/lib/etcd}}
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}
`

// upgraded is a control plane of today's version whose backup is from an older one.
var upgraded = phasetest.Past{Init: bootstrap.Init, Then: leaveBackup}

// leaveBackup writes the backup of an upgrade from the older version.
func leaveBackup(h *phasetest.LastingHost) error {
	authority, err := os.ReadFile(h.Root + "/etc/kubernetes/pki/ca.crt")
	if err != nil {
		return err
	}
	list, err := certs.ParseCerts(authority)
	if err != nil {
		return err
	}
	record, err := yaml.Marshal(upgrading.Record{Node: "cp-1", To: config.DefaultKubernetesVersion, CA: backup.ClusterPins(list), ClusterConfiguration: rollbackCluster})
	if err != nil {
		return err
	}
	snapshot, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		return err
	}
	old := map[string]string{
		upgrading.ManifestBackup + phasetest.UpgradeTime + "/upgrade.yaml": string(record),
		upgrading.EtcdBackup + phasetest.UpgradeTime + "/snapshot.db":      string(snapshot),
		upgrading.KubeletBackup + phasetest.UpgradeTime + "/upgrade.yaml":  string(record),
	}
	settings, err := os.ReadFile(h.Root + "/var/lib/kubelet/config.yaml")
	if err != nil {
		return err
	}
	old[upgrading.KubeletBackup+phasetest.UpgradeTime+"/config.yaml"] = string(settings) + "maxPods: 99\n"
	old[upgrading.KubeletBackup+phasetest.UpgradeTime+"/kubeadm-flags.env"] = phasetest.OldFlags
	data := h.Root + "/var/lib/etcd/member/snap"
	if err := errors.Join(os.MkdirAll(data, 0o700), h.Note(phasetest.HasEtcdData), os.WriteFile(data+"/db", []byte("new"), 0o600)); err != nil {
		return err
	}
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		manifest, err := os.ReadFile(h.Root + "/etc/kubernetes/manifests/" + component + ".yaml")
		if err != nil {
			return err
		}
		before := olderManifest(string(manifest))
		old[upgrading.ManifestBackup+phasetest.UpgradeTime+"/"+component+".yaml"] = before
		if err := h.Note(phasetest.ImageMark(manifests.ImageOf([]byte(before)))); err != nil {
			return err
		}
	}
	if err := h.StartPods(); err != nil {
		return err
	}
	for path, text := range old {
		path = h.Root + phasetest.RollbackBackups + path
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// olderManifest returns a static Pod as the older version has it.
func olderManifest(manifest string) string {
	if strings.Contains(manifest, "/etcd:") {
		image := manifests.ImageOf([]byte(manifest))
		return strings.ReplaceAll(manifest, image, image[:strings.LastIndex(image, ":")]+":3.6.8-0")
	}
	return strings.ReplaceAll(manifest, config.DefaultKubernetesVersion, phasetest.OldVersion)
}

// prepareRollbackNode makes an upgraded worker.
func prepareRollbackNode(t *testing.T, s *phasetest.Scene) error {
	err := phasetest.PrepareNode(bootstrap.Join, bootstrap.DetectEarlierRun)(t, s)
	if err == nil {
		err = phasetest.RunUpgrade("node", upgrade.Node)(t.Context(), phasetest.NewLastingHost(s.Root), s.API.Listener.Addr().String(), io.Discard)
	}
	s.Writing = 0
	return err
}

// rollBack runs the command, with or without --restore-etcd.
func rollBack(restore bool) phasetest.Runner {
	return func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		h.Has.Time = time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC) // fixes the names of directories that runs set aside
		_, pod := h.Lstat("/etc/kubernetes/manifests/etcd.yaml")
		if _, data := h.Lstat("/var/lib/etcd/member"); pod == nil && data != nil {
			return errors.New("had the node been booted now, etcd would have begun a cluster without data")
		}
		limit := cmp.Or(h.Limit, 30*time.Second)
		api := cluster.New(phasetest.CrashOptions(h, endpoint, thisnode.IsControlPlane(h), config.DefaultAdminKubeconfig, "/etc/kubernetes/kubelet.conf", limit))
		r, n, err := newRollback(ctx, api, h, h.Members(), restore, say)
		if err != nil {
			return err
		}
		return phasetest.CrashRun(ctx, n, h, endpoint, say, r.Phases(), nil)
	}
}

// newRollback makes a rollback from a host's backups. It asks api only for facts missing in the backup.
func newRollback(ctx context.Context, api cluster.Cluster, h host.Host, members etcd.Etcd, restore bool, say io.Writer) (*Rollback, *config.Node, error) {
	progress, err := upgrading.ReadProgress(h, phasetest.RollbackBackups)
	if err != nil {
		return nil, nil, err
	}
	backup, err := upgrading.LastBackup(h, phasetest.RollbackBackups, progress)
	if err != nil {
		return nil, nil, err
	}
	n, _, err := upgrading.Source{API: api, Host: h}.NodeBefore(ctx, backup, thisnode.Current(h))
	if err != nil {
		return nil, nil, err
	}
	env := &step.Env{Config: n, Host: h, Cluster: api, Etcd: members, UI: ui.NewLines(say, io.Discard)}
	r, err := New(ctx, env, Options{Backup: backup, Progress: progress, RestoreEtcd: restore})
	return r, n, err
}

var scenarios = []phasetest.Scenario{rollbackScenario, rollbackPlainScenario, rollbackNodeScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }

func TestAPIFaults(t *testing.T) { phasetest.SpoilEach(t, scenarios) }

func TestHungUnits(t *testing.T) { phasetest.HangEach(t, scenarios) }
