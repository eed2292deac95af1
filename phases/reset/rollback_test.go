// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	tmpDir   = "/etc/kubernetes/tmp"
	progress = tmpDir + "/" + thisnode.RollbackFile
)

// keptAt is a backup that an upgrade to always the same version makes at a time.
func keptAt(at time.Time) (files map[string]string, manifest string) {
	dir := tmpDir + "/" + upgrading.ManifestBackup + at.Format(host.BackupTime)
	manifest = dir + "/kube-scheduler.yaml"
	return map[string]string{manifest: "kind: Pod\n", dir + "/" + upgrading.RecordFile: "to: v1.38.0\nca: sha256:1\n"}, manifest
}

// TestResetEndsRollback: the next node's upgrade to the same version is separate from a rolled-back one, and nothing waits for the
// rollback.
func TestResetEndsRollback(t *testing.T) {
	began, next := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	earlier, _ := keptAt(began)
	later, manifest := keptAt(next)
	const record = "began: 2026-02-03T04:05:06Z\n"
	for name, text := range map[string]string{
		"finished":    record + "finished: 2026-02-03T05:05:06Z\n",
		"with data":   record + "snapshot: /a.db\naside: /srv/etcd/member.before-x\ncluster: abc\nrestored: true\nfinished: 2026-02-03T05:05:06Z\n",
		"interrupted": record + "snapshot: /a.db\naside: /srv/etcd/member.before-x\ncluster: abc\nrestored: true\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t, earlier, map[string]string{progress: text})
			s.reset(t)
			p, err := upgrading.ReadProgress(s.host, tmpDir)
			if err != nil || p.Finished.IsZero() || p.OldData+p.Snapshot+p.Cluster != "" || p.Restored {
				t.Errorf("%+v, %v", p, err)
			}
			if _, found, err := thisnode.InterruptedEtcd(s.host, "/etc/kubernetes"); found || err != nil {
				t.Errorf("interrupted: %t, %v", found, err)
			}
			phasetest.Fatal(t, lay(s.root, later))
			b, err := upgrading.LastBackup(s.host, tmpDir, p)
			phasetest.Fatal(t, err)
			if b == nil || !b.Began.Equal(next) || b.Manifests["kube-scheduler"] != manifest {
				t.Errorf("the last upgrade's backup is %+v", b)
			}
			if said := s.reset(t); !strings.Contains(said, "Nothing") {
				t.Errorf("the second time, it says:\n%s", said)
			}
		})
	}
}

// TestResetForgetsNoData: a file that says where etcd's data was set aside goes after the data.
func TestResetForgetsNoData(t *testing.T) {
	const old = "/srv/etcd/member.before-rollback-2026-02-03-04-05-06"
	rolledBack := map[string]string{progress: "began: 2026-02-03T04:05:06Z\naside: " + old + "\n", old + "/snap/db": "every Secret"}
	down, _, err := config.LoadReset(nil, config.ResetFlags{Host: true}, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	phasetest.Fatal(t, err)
	for name, files := range map[string]map[string]string{
		"the record of a rollback": rolledBack,
		"the static Pod":           {"/etc/kubernetes/manifests/etcd.yaml": strings.ReplaceAll(etcdPod, "DIR", "/srv/etcd"), old + "/snap/db": ""},
		"after a reset without it": rolledBack,
		"failing after a reset":    rolledBack,
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t, files)
			if strings.Contains(name, "after a reset") {
				s.reset(t)
			}
			if s.Config = down; name != "after a reset without it" {
				s.host.Before = refuse("remove directory " + old)
				if err := step.Run(t.Context(), s.Env, Node(), step.Options{}); err == nil {
					t.Fatalf("it doesn't report that %s stays:\n%s", old, s.said.String())
				}
				s.host.Before = nil
			}
			s.reset(t)
			if left, err := s.host.Lstat(old); err == nil {
				t.Errorf("%s is left", left.Name())
			}
			if left, err := s.host.Lstat(tmpDir); err == nil {
				t.Errorf("%s is left", left.Name())
			}
		})
	}
}

func refuse(refused string) func(context.Context, string) error {
	return func(_ context.Context, order string) error {
		if order == refused {
			return errors.New("read-only file system")
		}
		return nil
	}
}
