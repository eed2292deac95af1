// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// workerToUpgrade is a worker whose kubelet's settings an upgrade changes.
func workerToUpgrade(t *testing.T) *phasetest.JoinStage {
	t.Helper()
	s := phasetest.NewJoinStage(t)
	phasetest.Fatal(t, s.Discover(t))
	s.Config = s.Config.With(func(n *config.Node) { n.Join, n.Upgrade = nil, &config.Upgrade{} })
	return s
}

// TestUpgradeUploadsNoHostFacts: `upgrade apply` doesn't upload settings of its own host.
func TestUpgradeUploadsNoHostFacts(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	phasetest.Fatal(t, s.Discover(t))
	s.Cluster = s.API
	s.Play(t, node.UploadConfig())
	uploaded, err := cluster.ConfigMapText(t.Context(), s.API, "kube-system", "kubelet-config", "kubelet")
	phasetest.Fatal(t, err)
	fact.In(t, uploaded, "maxPods: 17\n")
	fact.NotIn(t, uploaded, "resolvConf")
}

// TestUpgradeFitsTheHost: an upgrade looks up the host's name servers again.
func TestUpgradeFitsTheHost(t *testing.T) {
	s := workerToUpgrade(t)
	s.Put(t, "/var/lib/kubelet/instance-config.yaml", "containerRuntimeEndpoint: unix:///run/own.sock\n")
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nresolvConf: "+config.ResolvedConf+"\nmaxPods: 17\n")
	s.Play(t, upgradeKubeletConfig())
	got := s.Get(t, "/var/lib/kubelet/config.yaml")
	fact.In(t, got, "containerRuntimeEndpoint: unix:///run/own.sock")
	fact.NotIn(t, got, "resolvConf")
	s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	s.Play(t, upgradeKubeletConfig())
	fact.In(t, s.Get(t, "/var/lib/kubelet/config.yaml"), "resolvConf: "+config.ResolvedConf)
}

// TestUpgradeKeepsTheRuntime: a flag of older versions goes, but the kubelet stays with the runtime that the flag has chosen.
func TestUpgradeKeepsTheRuntime(t *testing.T) {
	const flags = "/var/lib/kubelet/kubeadm-flags.env"
	s := workerToUpgrade(t)
	s.Put(t, "/var/lib/kubelet/instance-config.yaml", "containerRuntimeEndpoint: unix:///a\n")
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///a\n")
	s.Put(t, flags, `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///b"`+"\n")
	s.Play(t, upgradeKubeletConfig())
	fact.NotIn(t, s.Get(t, flags), "unix://")
	fact.In(t, s.Get(t, "/var/lib/kubelet/config.yaml"), "containerRuntimeEndpoint: unix:///b")
	if got := thisnode.KubeletSocket(s.Host); got != "unix:///b" {
		t.Errorf("the runtime moved to %s", got)
	}
}

// TestUpgradeThatChangesNothing has a backup of its own if an earlier upgrade has one, which a rollback would use otherwise. A
// second run makes no other.
func TestUpgradeThatChangesNothing(t *testing.T) {
	s := workerToUpgrade(t)
	root := node.BackupRoot(s.Env)
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	s.Play(t, upgradeKubeletConfig())
	phasetest.Fatal(t, os.RemoveAll(filepath.Join(s.Root, root)))
	s.Play(t, upgradeKubeletConfig())
	if _, err := s.Host.Lstat(root); err == nil {
		t.Fatal("it has a backup of files that stay")
	}
	earlier := filepath.Join(root, upgrading.KubeletBackup+phasetest.UpgradeTime)
	s.Put(t, filepath.Join(earlier, upgrading.RecordFile), "node: x\nto: v1.30.0\ncompleted: 2020-01-01T00:00:00Z\n")
	s.Put(t, filepath.Join(earlier, "config.yaml"), "kind: KubeletConfiguration\n")
	for range 2 {
		s.Play(t, upgradeKubeletConfig())
		last, _, err := backup.LastUpgrade(s.Env)
		if phasetest.Fatal(t, err); last == nil || last.To != s.Config.Cluster.KubernetesVersion {
			t.Errorf("the last upgrade is %+v", last)
		}
		if dirs, err := s.Host.ReadDir(root); err != nil || len(dirs) != 2 {
			t.Errorf("%v, %v", dirs, err)
		}
	}
}

// TestUnfinishedBackups: a backup removes files that a killed run was writing into earlier ones, and nothing else.
func TestUnfinishedBackups(t *testing.T) {
	s := workerToUpgrade(t)
	s.Put(t, "/var/lib/kubelet/config.yaml", fixture.KubeletConfiguration)
	const unfinished = ".config.yaml.slipway-QI3UMSHA"
	var left, kept []string
	for _, dir := range []string{
		upgrading.ManifestBackup + phasetest.UpgradeTime, upgrading.KubeletBackup + phasetest.UpgradeTime, "operators",
	} {
		dir = filepath.Join(node.BackupRoot(s.Env), dir)
		kept = append(kept, filepath.Join(dir, "config.yaml"), filepath.Join(dir, ".config.yaml.swp"))
		left = append(left, filepath.Join(dir, unfinished))
	}
	kept, left = append(kept, left[2]), left[:2]
	left = append(left, filepath.Join(node.BackupRoot(s.Env), upgrading.EtcdBackup+phasetest.UpgradeTime, ".snapshot.db.slipway-QI3UMSHA"))
	for _, kind := range []string{upgrading.ManifestBackup, upgrading.KubeletBackup, upgrading.EtcdBackup} { // files
		kept = append(kept, filepath.Join(node.BackupRoot(s.Env), kind+"notes.txt"))
	}
	for _, path := range slices.Concat(left, kept) {
		s.Put(t, path, "kind: KubeletConfiguration\n")
	}
	s.Play(t, upgradeKubeletConfig())
	for _, path := range left {
		if there, err := host.Exists(s.Host, path); err != nil || there {
			t.Errorf("%s is there: %t, %v", path, there, err)
		}
	}
	phasetest.Fatal(t, backup.PruneSnapshots(s.Env))
	for _, path := range slices.Concat(left, kept) {
		there, err := host.Exists(s.Host, path)
		phasetest.Fatal(t, err)
		if there != slices.Contains(kept, path) {
			t.Errorf("%s is there: %t", path, there)
		}
	}
}
