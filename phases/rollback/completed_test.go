// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRunAfterCompletedUpgrade: another run to the same version, such as for new settings, is another upgrade if the first was
// completed. A rollback goes back to just before that run, not months, even if the clock was ahead during the first.
func TestRunAfterCompletedUpgrade(t *testing.T) {
	for name, ahead := range map[string]bool{"a minute ago": false, "a clock ahead": true} {
		t.Run(name, func(t *testing.T) { runAfterCompletedUpgrade(t, ahead) })
	}
}

// moveToFuture renames the backups as if the clock had been ahead.
func moveToFuture(t *testing.T, root string) {
	t.Helper()
	for _, kind := range []string{upgrading.ManifestBackup, upgrading.EtcdBackup, upgrading.KubeletBackup} {
		all, err := filepath.Glob(root + phasetest.RollbackBackups + kind + "*")
		phasetest.Fatal(t, err)
		for _, dir := range all {
			phasetest.Fatal(t, os.Rename(dir, root+phasetest.RollbackBackups+kind+"2099-01-01-00-00-00"))
		}
	}
}

func runAfterCompletedUpgrade(t *testing.T, ahead bool) {
	t.Helper()
	s := phasetest.NewScene(t, upgradeScenario)
	defer s.Close()
	earlier := phasetest.NewLastingHost(s.Root)
	earlier.On.Now = func() time.Time { return time.Now().Add(-time.Minute) } // so the backups of the two runs have different names
	if said, err := s.On(t.Context(), earlier); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if ahead {
		moveToFuture(t, s.Root)
	}
	first := lastBackup(t, earlier)
	if first.From != phasetest.CrashFrom || first.Completed.IsZero() {
		t.Fatalf("the first upgrade is from %s, completed at %s", first.From, first.Completed)
	}
	if said, err := s.Again(t.Context()); err != nil || !lastBackup(t, earlier).Ended.Equal(first.Ended) {
		t.Errorf("a run that replaces nothing: %v\n%s", err, said)
	}

	replaced := s.Root + "/etc/kubernetes/manifests/kube-scheduler.yaml"
	if err := os.Chtimes(replaced, time.Now(), time.Now()); err != nil { // it doesn't run with its manifest any more
		t.Fatal(err)
	}
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	b := lastBackup(t, earlier)
	if b.From != phasetest.CrashTo || !b.Began.After(first.Ended) || b.Completed.IsZero() || len(b.Manifests) != 4 || len(b.Snapshots) != 1 || len(b.Later) != 0 {
		t.Errorf("the second upgrade is %+v", b)
	}
	r, _, err := newRollback(t.Context(), noAPI(), phasetest.NewLastingHost(s.Root), otherMembers{}, false, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	fact.In(t, r.Summary(), "Kubernetes "+phasetest.CrashTo)
}

// TestSnapshotsOfClockAhead: a run never removes its own snapshot, even if earlier ones seem to come from the future.
func TestSnapshotsOfClockAhead(t *testing.T) {
	s := phasetest.NewScene(t, upgradeScenario)
	defer s.Close()
	for _, day := range []string{"01", "02", "03"} {
		replaceFile(t, s.Root, phasetest.RollbackBackups+upgrading.EtcdBackup+"2099-01-"+day+"-00-00-00/snapshot.db", fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	}
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := lastBackup(t, phasetest.NewLastingHost(s.Root)).Snapshots; len(got) != 1 || filepath.Dir(got[0]) != phasetest.RollbackBackups+upgrading.EtcdBackup+"2099-01-03-00-00-01" {
		t.Errorf("the upgrade's snapshots are %v", got)
	}
}

// TestFinishedAfterBackup: the next upgrade's backup, which is later than this one's, is also later than the rollback.
func TestFinishedAfterBackup(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	h.Has.Time = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, r.finish(t.Context(), &step.Env{Config: n, Host: h, UI: ui.NewLines(io.Discard, io.Discard)}))
	if p, err := upgrading.ReadProgress(h, phasetest.RollbackBackups); err != nil || p.Finished.Before(r.Backup.Began) {
		t.Errorf("finished at %s, %v", p.Finished, err)
	}
}

// TestBackupAfterRollback: the clock was ahead at the end of a rollback, and has been set since. The next upgrade's backup is still
// later than that rollback, so it isn't taken for a part of the upgrade that was rolled back.
func TestBackupAfterRollback(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, "/var/lib/kubelet/config.yaml", "old")
	root, ahead := node.BackupRoot(s.Env), time.Now().UTC().Add(24*time.Hour).Truncate(time.Second)
	phasetest.Fatal(t, s.Host.EnsureDir(root, 0o700))
	phasetest.Fatal(t, upgrading.Progress{Finished: ahead}.Write(s.Host, root))
	phasetest.Fatal(t, backup.Kubelet(s.Env, []ownership.File{{Path: "/var/lib/kubelet/config.yaml", Data: []byte("new"), Mode: 0o600}}))
	if last, err := upgrading.LastBackupTime(s.Host, root); err != nil || !last.After(ahead) {
		t.Errorf("the backup is of %s, %v; the rollback of %s", last, err, ahead)
	}
}

func lastBackup(t *testing.T, h *phasetest.LastingHost) *upgrading.Backup {
	t.Helper()
	b, err := upgrading.LastBackup(h, phasetest.RollbackBackups, upgrading.Progress{})
	if err != nil || b == nil {
		t.Fatal(b, err)
	}
	return b
}

// TestUpgradeAgainDuringRollback: an upgrade run again during an unfinished rollback is part of the one being rolled back.
func TestUpgradeAgainDuringRollback(t *testing.T) {
	s := phasetest.NewScene(t, upgradeScenario)
	defer s.Close()
	earlier := phasetest.NewLastingHost(s.Root)
	earlier.On.Now = func() time.Time { return time.Now().Add(-time.Minute) }
	if said, err := s.On(t.Context(), earlier); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	began := lastBackup(t, earlier).Began
	h := phasetest.NewLastingHost(s.Root)
	h.Fail = map[string]error{"restart kubelet.service": os.ErrDeadlineExceeded}
	if err := rollBack(false)(t.Context(), h, s.API.Listener.Addr().String(), io.Discard); err == nil {
		t.Fatal("the rollback was not interrupted")
	}
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if b := lastBackup(t, earlier); b.From != phasetest.CrashFrom || !b.Began.Equal(began) || b.Completed.IsZero() {
		t.Errorf("the last upgrade is %+v", b)
	}
}

// TestSnapshotSpaceAgain: if the disk fills after the checks, such as with pulled images, the run ends before its snapshot.
func TestSnapshotSpaceAgain(t *testing.T) {
	for _, ignored := range []bool{false, true} {
		s := phasetest.NewScene(t, upgradeScenario)
		defer s.Close()
		h := phasetest.NewLastingHost(s.Root)
		var once sync.Once // images are pulled side by side
		h.On.PullImage = func(ctx context.Context, socket, image string) error {
			once.Do(func() { h.Has.Space["/"] = host.Space{Free: 11 << 30, Total: 100 << 30} })
			return h.Pull(ctx, socket, image)
		}
		if ignored {
			h.Plans = func(env *step.Env) { env.Config.IgnorePreflightErrors = []string{backup.SnapshotCheck} }
		}
		said, err := s.On(t.Context(), h)
		snapshots, globErr := filepath.Glob(s.Root + phasetest.RollbackBackups + upgrading.EtcdBackup + "*")
		if globErr != nil {
			t.Fatal(globErr)
		}
		if ignored {
			if err != nil || len(snapshots) != 1 {
				t.Errorf("ignored: %v, %v\n%s", err, snapshots, said)
			}
			continue
		}
		if fact.Error(t, err, backup.SnapshotCheck, "/etc/kubernetes/tmp"); len(snapshots) > 0 {
			t.Errorf("it has written %v", snapshots)
		}
		if got := manifests.ImageOf([]byte(fixture.Get(t, s.Root, "/etc/kubernetes/manifests/kube-apiserver.yaml"))); got != "registry.k8s.io/kube-apiserver:"+phasetest.CrashFrom {
			t.Errorf("the API server was replaced by %s", got)
		}
	}
}

// TestPartialSnapshotMakesRoom: a killed run's part of a snapshot is removed before the space is counted.
func TestPartialSnapshotMakesRoom(t *testing.T) {
	s := phasetest.NewScene(t, upgradeScenario)
	defer s.Close()
	part := phasetest.RollbackBackups + upgrading.EtcdBackup + phasetest.UpgradeTime + "/.snapshot.db.slipway-QI3UMSHA"
	fixture.Put(t, s.Root, part, "x")
	h := phasetest.NewLastingHost(s.Root)
	h.Has.Space["/"] = host.Space{Free: 1 << 30, Total: 100 << 30}
	_, err := s.On(t.Context(), h)
	fact.Error(t, err, backup.SnapshotCheck)
	if _, err := h.Lstat(part); err == nil {
		t.Errorf("%s is still there", part)
	}
}

// TestRollbackNotesOperatorsChange: when a rollback stores the version, managedFields no longer show that an operator changed the
// configuration, and the next upgrade would take that change's effects for edits.
func TestRollbackNotesOperatorsChange(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	stored := fixture.ConfigMap("kubeadm-config", manifests.KubeadmConfigKey, "kubernetesVersion: v1.37.2\n")
	stored.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		Time:     &metav1.Time{Time: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)},
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:ClusterConfiguration":{}}}`)},
	}}
	phasetest.Fatal(t, s.API.Ensure(t.Context(), stored))
	s.Cluster = s.API
	r := &Rollback{Options: Options{Backup: &upgrading.Backup{From: "v1.36.4"}}, before: map[string][]byte{manifests.APIServerName: {}}}
	phasetest.Fatal(t, r.storeConfiguration(t.Context(), s.Env))
	now := node.ConfigMap(manifests.KubeadmConfigMap)
	if _, err := s.API.Get(t.Context(), now); err != nil || now.Annotations[edits.ChangedByOperator] != "2026-11-01T12:00:00Z" {
		t.Errorf("%v: %+v", err, now)
	}
	fact.In(t, now.Data[manifests.KubeadmConfigKey], "kubernetesVersion: v1.36.4")
}
