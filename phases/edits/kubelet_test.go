// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestKubeletEdits: settings of the cluster or the node aren't edits, and the patch keeps the
func TestKubeletEdits(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Config.Upgrade.First = false
	cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\nregistryBurst: 3\n")
	if err := s.API.Ensure(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	s.Put(t, "/var/lib/kubelet/instance-config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///mine\n")
	const shared = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix:///mine\nmaxPods: 99\n"
	s.Put(t, "/var/lib/kubelet/config.yaml", shared)
	if found := KubeletFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("found %q", phasetest.InWords(found))
	}
	s.Put(t, "/var/lib/kubelet/config.yaml", shared+"eventBurst: 7\nregistryBurst: 4\n")
	phasetest.CheckFindings(t, KubeletFindings(t.Context(), s.Env),
		phasetest.FoundAs{Name: "error KubeletConfigEdits", Facts: []string{"/var/lib/kubelet/config.yaml"}, List: "eventBurst, registryBurst"})
	patches, err := PatchesOf(t.Context(), s.Env)
	files := patches.Kept
	if err != nil || len(files) != 1 || files[0].Name != "kubeletconfiguration0+merge.yaml" {
		t.Fatalf("%v, %v", files, err)
	}
	s.Put(t, "/patches/"+files[0].Name, string(files[0].Data))
	s.Config.PatchesDir = "/patches"
	if found := KubeletFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("with the patch: %q", phasetest.InWords(found))
	}
}

// TestKubeletEditsInForm: zero values and other notations aren't  The patch also keeps removals inside a field, and the
// finding has the whole patch, without secrets.
func TestKubeletEditsInForm(t *testing.T) {
	const document = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
	s := phasetest.PlaneToUpgrade(t)
	s.Config.Upgrade.First = false
	s.Config.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}
	s.Put(t, "/var/lib/kubelet/config.yaml", document+"syncFrequency: 0s\ncrashLoopBackOff: {}\nmaxPods: 0\nmemorySwap: {}\nevictionHard: {\"nodefs.available\": '10%', \"memory.available\": 100Mi}\n")
	if found := KubeletFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("found %q", phasetest.InWords(found))
	}
	s.Put(t, "/var/lib/kubelet/config.yaml", document+"evictionHard: {memory.available: 200Mi}\nstaticPodURLHeader: {Authorization: [Bearer hidden-value]}\n")
	found := KubeletFindings(t.Context(), s.Env)
	phasetest.CheckFindings(t, found, phasetest.FoundAs{Name: "error KubeletConfigEdits", List: "evictionHard, staticPodURLHeader"})
	fact.In(t, found[0].Remedy, "kubeletconfiguration0+merge.yaml", "memory.available: 200Mi", "nodefs.available: null", "--ignore-preflight-errors=KubeletConfigEdits")
	fact.NotIn(t, found[0].Remedy, "hidden-value")
	patches, err := PatchesOf(t.Context(), s.Env)
	if err != nil || len(patches.Kept) != 1 {
		t.Fatalf("%v, %v", patches, err)
	}
	s.Put(t, "/patches/"+patches.Kept[0].Name, string(patches.Kept[0].Data))
	s.Config.PatchesDir = "/patches"
	if found := KubeletFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("with the patch: %q", phasetest.InWords(found))
	}
}

// TestChangedKubeletConfiguration: changes of ConfigMap kubelet-config reach each node with an upgrade, so a field from before
// the change is no error. A newer edit is.
func TestChangedKubeletConfiguration(t *testing.T) {
	const path, fields = "/var/lib/kubelet/config.yaml", `{"f:data":{"f:kubelet":{}}}`
	for name, row := range map[string]struct {
		stored   metav1.ObjectMeta
		want     string
		doubtful bool
	}{
		"changed since":  {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", fields, time.Hour)}}, "warning", true},
		"changed before": {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", fields, -time.Hour)}}, "error", false},
		"by Slipway":     {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("slipway", fields, time.Hour)}}, "error", false},
		"before the first control plane was upgraded": {metav1.ObjectMeta{Annotations: map[string]string{ChangedByOperator: "2026-11-01T13:00:00Z"},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("slipway", fields, 2*time.Hour)}}, "warning", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.Config.Upgrade.First = false
			cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\n")
			cm.Annotations, cm.ManagedFields = row.stored.Annotations, row.stored.ManagedFields
			if err := s.API.Ensure(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			s.Put(t, path, "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 50\n")
			if err := os.Chtimes(filepath.Join(s.Root, path), time.Time{}, manifestsWritten); err != nil {
				t.Fatal(err)
			}
			phasetest.CheckFindings(t, KubeletFindings(t.Context(), s.Env), phasetest.FoundAs{Name: row.want + " KubeletConfigEdits", Facts: []string{path}, List: "maxPods"})
			kept, doubtful := editNames(t, s)
			if len(kept) == len(doubtful) || row.doubtful != slices.Contains(doubtful, "kubeletconfiguration0-doubtful+merge.yaml") {
				t.Errorf("patches %q, %q", kept, doubtful)
			}
		})
	}
}

// TestEditedKubeletConfiguration: if the file is known to be edited, a later change of ConfigMap kubelet-config doesn't turn the
// error into a warning, but makes the patch doubtful. Removing a field is an edit, but a field added to the ConfigMap since is
// none.
func TestEditedKubeletConfiguration(t *testing.T) {
	const path, fields = "/var/lib/kubelet/config.yaml", `{"f:data":{"f:kubelet":{}}}`
	const head = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
	written := func(t *testing.T, s *phasetest.Stage) { writtenByUpgrade(t, s, path) }
	for name, row := range map[string]struct {
		made    string // the file's contents
		then    func(*testing.T, *phasetest.Stage)
		edited  string // its contents now; empty if nobody has edited it
		changed bool   // ConfigMap changed since
		want    []phasetest.FoundAs
	}{
		"edited, and the ConfigMap changed":    {"maxPods: 99\neventBurst: 5\n", written, "maxPods: 50\neventBurst: 5\n", true, []phasetest.FoundAs{{Name: "error KubeletConfigEdits", List: "maxPods"}}},
		"the ConfigMap changed":                {"maxPods: 98\neventBurst: 5\n", written, "", true, []phasetest.FoundAs{{Name: "warning KubeletConfigEdits", List: "maxPods"}}},
		"who knows, and the ConfigMap changed": {"maxPods: 98\neventBurst: 5\n", nil, "", true, []phasetest.FoundAs{{Name: "warning KubeletConfigEdits", List: "maxPods"}}},
		"removed":                              {"maxPods: 99\neventBurst: 5\n", written, "eventBurst: 5\n", false, []phasetest.FoundAs{{Name: "error KubeletConfigEdits", List: "maxPods"}}},
		"removed, and the ConfigMap changed":   {"maxPods: 99\neventBurst: 5\n", written, "eventBurst: 5\n", true, []phasetest.FoundAs{{Name: "error KubeletConfigEdits", List: "maxPods"}}},
		"removed, as far as anybody knows":     {"eventBurst: 5\n", nil, "", false, []phasetest.FoundAs{{Name: "error KubeletConfigEdits", List: "maxPods"}}},
		"the ConfigMap has got one":            {"eventBurst: 5\n", written, "", true, nil},
		"the ConfigMap may have got one":       {"eventBurst: 5\n", nil, "", true, []phasetest.FoundAs{{Name: "warning KubeletConfigEdits", List: "maxPods"}}},
		"the cluster's upgrade has added one":  {"eventBurst: 5\n", written, "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.Config.Upgrade.First = false
			s.Config.Kubelet.MaxPods, s.Config.Kubelet.EventBurst = 99, 5
			cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\neventBurst: 5\n")
			if row.changed {
				cm.ManagedFields = []metav1.ManagedFieldsEntry{manager("kubectl-edit", fields, time.Hour)}
			}
			if err := s.API.Ensure(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			s.Put(t, path, head+row.made)
			if row.then != nil {
				row.then(t, s)
			}
			if row.edited != "" {
				s.Put(t, path, head+row.edited)
			}
			if err := os.Chtimes(filepath.Join(s.Root, path), time.Time{}, manifestsWritten); err != nil {
				t.Fatal(err)
			}
			phasetest.CheckFindings(t, KubeletFindings(t.Context(), s.Env), row.want...)
			if len(row.want) == 0 || row.want[0].Name != "error KubeletConfigEdits" {
				return
			}
			patches, err := PatchesOf(t.Context(), s.Env)
			list, others := patches.Kept, patches.Doubtful
			if row.changed {
				list, others = others, list
			}
			if err != nil || len(list) != 1 || len(others) > 0 {
				t.Fatalf("%v, %v", patches, err)
			}
			s.Put(t, "/patches/"+list[0].Name, string(list[0].Data))
			s.Config.PatchesDir = "/patches"
			phasetest.CheckFindings(t, KubeletFindings(t.Context(), s.Env))
		})
	}
}
