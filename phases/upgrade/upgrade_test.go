// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestWholeUpgrade: a plan shows the last control plane's changes to the add-ons, even if others are behind.
func TestWholeUpgrade(t *testing.T) {
	for want, workflow := range map[string][]step.Phase{"Leaving CoreDNS": Apply(), "Upgrading CoreDNS to " + phasetest.NewDNS: PlanPhases()} {
		s := phasetest.NewAddonStage(t, "")
		s.Planes.Server("cp-2", "registry.k8s.io/kube-apiserver:v1.36.4")
		for _, p := range workflow {
			if p.Name == addon.PhaseName {
				s.Play(t, p)
			}
		}
		fact.In(t, s.Said.String(), want)
	}
}

// TestProtectionWithoutChecks: without the checks before it, the phase drops nothing either. It has the Lease only while it looks.
func TestProtectionWithoutChecks(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	const first = "    - kube-apiserver\n"
	s.EditPod(t, manifests.APIServerName, first, first+"    - --audit-policy-file=/etc/kubernetes/pki/audit.yaml\n")
	before := s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml")
	err := step.Run(t.Context(), s.Env, []step.Phase{upgradeControlPlane()}, step.Options{})
	fact.Error(t, err, "StaticPodProtection", "--audit-policy-file=/etc/kubernetes/pki/audit.yaml", "kube-apiserver")
	others := slices.DeleteFunc(s.Done, func(action string) bool { return action == "ensure Lease slipway-upgrade" })
	if s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml") != before || len(others) > 0 {
		t.Errorf("changed: %q", others)
	}
}

// TestUpgradeEndsRollback: an interrupted rollback ends with an upgrade that has replaced static Pods since, so that nothing waits for it. It
// doesn't end with one that found nothing to replace.
func TestUpgradeEndsRollback(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := first.Add(time.Hour)
	for name, c := range map[string]struct {
		runs []time.Time
		ends bool
	}{"replaced again": {[]time.Time{first, second}, true}, "nothing replaced": {[]time.Time{first}, false}} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			root := node.BackupRoot(s.Env)
			for _, at := range c.runs {
				dir := filepath.Join(root, upgrading.ManifestBackup+at.Format(host.BackupTime))
				s.Put(t, dir+"/kube-scheduler.yaml", "kind: Pod\n")
				s.Put(t, dir+"/"+upgrading.RecordFile, "to: v1.37.2\nca: sha256:1\n")
			}
			begun := upgrading.Progress{Began: first, Ended: first, OldData: "/var/lib/etcd/member.before-x", Restored: true}
			phasetest.Fatal(t, begun.Write(s.Host, root))
			phasetest.Fatal(t, completeUpgrade(s.Env))
			now, err := upgrading.ReadProgress(s.Host, root)
			phasetest.Fatal(t, err)
			_, interrupted, err := thisnode.InterruptedEtcd(s.Host, s.Config.Paths.Kubernetes)
			phasetest.Fatal(t, err)
			if now.Finished.IsZero() == c.ends || interrupted == c.ends || now.OldData != begun.OldData {
				t.Errorf("%+v; interrupted: %t", now, interrupted)
			}
			last, err := upgrading.LastBackup(s.Host, root, now)
			phasetest.Fatal(t, err)
			if !last.Began.Equal(first) || last.Completed.IsZero() {
				t.Errorf("the upgrade began at %s, completed at %s", last.Began, last.Completed)
			}
		})
	}
}

// TestUploadKeepsTheChange: the other control planes learn when the configuration was changed, even after the first's upgrade.
func TestUploadKeepsTheChange(t *testing.T) {
	const annotation = "slipway/changed-by-operator"
	by := func(manager string) metav1.ObjectMeta {
		return metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			Time:     &metav1.Time{Time: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)},
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:ClusterConfiguration":{}}}`)},
		}}}
	}
	for name, row := range map[string]struct {
		stored metav1.ObjectMeta
		want   string
	}{
		"by kubectl":          {by("kubectl-edit"), "2026-11-01T12:00:00Z"},
		"an earlier upgrade":  {metav1.ObjectMeta{Annotations: map[string]string{annotation: "2026-11-01T12:00:00Z"}}, "2026-11-01T12:00:00Z"},
		"by kubeadm":          {by("kubeadm"), ""},
		"without any manager": {metav1.ObjectMeta{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			stored := fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "kind: ClusterConfiguration\n")
			stored.Annotations, stored.ManagedFields = row.stored.Annotations, row.stored.ManagedFields
			phasetest.Fatal(t, s.API.Ensure(t.Context(), stored))
			s.Play(t, upgradeUploadConfig().Children[0])
			cm := fixture.ConfigMap("kubeadm-config", "", "")
			if _, err := s.API.Get(t.Context(), cm); err != nil || cm.Annotations[annotation] != row.want {
				t.Errorf("annotations %v, %v", cm.Annotations, err)
			}
			if !strings.Contains(cm.Data["ClusterConfiguration"], "kubernetesVersion: v1.37.2") {
				t.Errorf("stored %q", cm.Data)
			}
		})
	}
}
