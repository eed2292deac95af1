// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/leaks"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestRecordedEtcdCluster: the backup names the cluster of the data that etcd runs with, not of an older copy where the configuration says.
func TestRecordedEtcdCluster(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	phasetest.Fatal(t, s.API.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "kind: ClusterConfiguration\n")))
	s.EditPod(t, manifests.EtcdName, "path: /var/lib/etcd\n", "path: /mnt/etcd\n")
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xc1, true))
	s.Put(t, strings.Replace(phasetest.EtcdLog, "/var/lib/etcd", "/mnt/etcd", 1), phasetest.LogOf(0xa, 0xc2, true))
	failed := backup.ControlPlane(t.Context(), s.Env, nil) // perhaps at the snapshot, which comes after the record
	last, _, err := backup.LastUpgrade(s.Env)
	phasetest.Fatal(t, err)
	if last == nil || !slices.Equal(last.EtcdClusters, []string{"c2"}) {
		t.Errorf("recorded %+v; %v", last, failed)
	}
}
