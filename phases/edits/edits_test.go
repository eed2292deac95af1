// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var manifestsWritten = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// manifestsWrittenAt gives all static Pods the same age.
func manifestsWrittenAt(t *testing.T, s *phasetest.Stage, at time.Time) {
	t.Helper()
	for _, name := range manifests.Components(s.Config) {
		if err := os.Chtimes(filepath.Join(s.Root, "/etc/kubernetes/manifests/"+name+".yaml"), time.Time{}, at); err != nil {
			t.Fatal(err)
		}
	}
}

// manager returns an entry of managedFields; at is relative to manifestsWritten.
func manager(name, fields string, at time.Duration) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		Time: &metav1.Time{Time: manifestsWritten.Add(at)}, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
}

const configurationFields = `{"f:data":{".":{},"f:ClusterConfiguration":{}}}`

func configured(t *testing.T, s *phasetest.Stage, meta metav1.ObjectMeta) {
	t.Helper()
	cm := fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "kind: ClusterConfiguration\n")
	cm.Annotations, cm.ManagedFields = meta.Annotations, meta.ManagedFields
	if err := s.API.Ensure(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
}

// editNames returns the names of the patches that keep edits.
func editNames(t *testing.T, s *phasetest.Stage) (kept, doubtful []string) {
	t.Helper()
	patches, err := PatchesOf(t.Context(), s.Env)
	if err != nil {
		t.Fatal(err)
	}
	names := func(files []config.PatchFile) (list []string) {
		for _, f := range files {
			list = append(list, f.Name)
		}
		return list
	}
	return names(patches.Kept), names(patches.Doubtful)
}

// TestChangedConfiguration: settings that an operator has removed from the ClusterConfiguration go with the upgrade, as in
// kubeadm. Changes that can't come from there, or are newer, are still edits.
func TestChangedConfiguration(t *testing.T) {
	const flag, volume = "- --concurrent-service-syncs=1", ", - mountPath: /flags, name: flags, path: /flags, name: flags"
	isEdit := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "error StaticPodEdits", Facts: []string{"kube-controller-manager"}, List: list}
	}
	isChange := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{"kube-controller-manager", "ClusterConfiguration", "2026-11-01 13:00:00 UTC"}, List: list}
	}
	hour := func(name, fields string) metav1.ObjectMeta {
		return metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			manager("kubeadm", configurationFields, -time.Hour), manager(name, fields, time.Hour)}}
	}
	withFlag := func(t *testing.T, s *phasetest.Stage) {
		s.EditPod(t, manifests.ControllerManagerName, "    - --leader-elect=true\n", "    - --leader-elect=true\n    - --concurrent-service-syncs=1\n")
	}
	for name, row := range map[string]struct {
		stored metav1.ObjectMeta
		edit   func(*testing.T, *phasetest.Stage)
		want   []phasetest.FoundAs
		kept   []string
		maybe  []string
	}{
		"changed since": {hour("kubectl-edit", configurationFields), withFlag, []phasetest.FoundAs{isChange(flag)}, nil, []string{"kube-controller-manager0-doubtful+json.yaml"}},
		"changed before": {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", configurationFields, -time.Minute)}},
			withFlag, []phasetest.FoundAs{isEdit(flag)}, []string{"kube-controller-manager0+json.yaml"}, nil},
		"upgraded by kubeadm": {hour("kubeadm", configurationFields), withFlag, []phasetest.FoundAs{isEdit(flag)}, []string{"kube-controller-manager0+json.yaml"}, nil},
		"upgraded by Slipway": {hour("slipway", configurationFields), withFlag, []phasetest.FoundAs{isEdit(flag)}, []string{"kube-controller-manager0+json.yaml"}, nil},
		"another field": {hour("kubectl-label", `{"f:metadata":{"f:labels":{"f:team":{}}}}`), withFlag,
			[]phasetest.FoundAs{isEdit(flag)}, []string{"kube-controller-manager0+json.yaml"}, nil},
		"changed before another control plane was upgraded": {metav1.ObjectMeta{Annotations: map[string]string{ChangedByOperator: "2026-11-01T13:00:00Z"},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("slipway", configurationFields, 2*time.Hour)}},
			withFlag, []phasetest.FoundAs{isChange(flag)}, nil, []string{"kube-controller-manager0-doubtful+json.yaml"}},
		"put back after the upgrade has failed": {hour("kubectl-edit", configurationFields), func(t *testing.T, s *phasetest.Stage) {
			withFlag(t, s)
			const kept = "/etc/kubernetes/tmp/kubeadm-backup-manifests-2026-11-01-14-00-00/"
			s.Put(t, kept+"upgrade.yaml", "node: cp-1\nto: v1.37.2\n")
			path := s.Config.Paths.StaticPod(manifests.ControllerManagerName)
			s.Put(t, kept+"kube-controller-manager.yaml", s.Get(t, path))
			if err := os.Chtimes(filepath.Join(s.Root, path), time.Time{}, manifestsWritten.Add(3*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}, []phasetest.FoundAs{isChange(flag)}, nil, []string{"kube-controller-manager0-doubtful+json.yaml"}},
		"volumes": {hour("kubectl-edit", configurationFields), func(t *testing.T, s *phasetest.Stage) {
			withFlag(t, s)
			s.EditPod(t, manifests.ControllerManagerName, "    volumeMounts:\n", "    volumeMounts:\n    - mountPath: /flags\n      name: flags\n")
			s.EditPod(t, manifests.ControllerManagerName, "  volumes:\n", "  volumes:\n  - hostPath:\n      path: /flags\n    name: flags\n")
		}, []phasetest.FoundAs{isChange(flag + volume)}, nil,
			[]string{"kube-controller-manager0-doubtful+json.yaml", "kube-controller-manager0-doubtful+strategic.yaml"}},
		"also what no configuration has": {hour("kubectl-edit", configurationFields), func(t *testing.T, s *phasetest.Stage) {
			withFlag(t, s)
			s.EditPod(t, manifests.ControllerManagerName, "cpu: 200m", "cpu: 900m")
		}, []phasetest.FoundAs{{Name: "error StaticPodEdits", Facts: []string{"kube-controller-manager", ": cpu: 900m;"}, List: "cpu: 200m"}, isChange(flag)},
			[]string{"kube-controller-manager0+strategic.yaml"}, []string{"kube-controller-manager0-doubtful+json.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			row.edit(t, s)
			manifestsWrittenAt(t, s, manifestsWritten)
			configured(t, s, row.stored)
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), row.want...)
			kept, doubtful := editNames(t, s)
			if diff := cmp.Diff([][]string{row.kept, row.maybe}, [][]string{kept, doubtful}); diff != "" {
				t.Errorf("patches:\n%s", diff)
			}
		})
	}
}

// TestNamesOfPrintedPatches: certain and doubtful edits of a component get patches of different names, and so do later edits, because one
// directory may hold all of them.
func TestNamesOfPrintedPatches(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.EditPod(t, manifests.ControllerManagerName, "    - --leader-elect=true\n", "    - --leader-elect=true\n    - --concurrent-service-syncs=1\n")
	printed := func() (names []string) {
		list, err := editsHere(t.Context(), s.Env)
		phasetest.Fatal(t, err)
		for _, e := range list {
			if e.edited == nil {
				continue
			}
			e.suffix, e.doubtful = patchSuffix(s.Env), new(*e.edited)
			for _, f := range e.findings() {
				names = append(names, regexp.MustCompile(`kube-controller-manager\S*\.yaml`).FindAllString(f.Remedy, -1)...)
			}
		}
		return names
	}
	fact.List(t, printed(), "kube-controller-manager0+json.yaml", "kube-controller-manager0-doubtful+json.yaml")
	s.Put(t, "/patches/kube-scheduler+merge.yaml", "metadata: {labels: {a: b}}\n")
	s.Config.PatchesDir = "/patches"
	fact.List(t, printed(), "kube-controller-managerzz-edits+json.yaml", "kube-controller-managerzz-edits-doubtful+json.yaml")
	s.Put(t, "/patches/kube-controller-managerzz-edits+merge.yaml", "metadata: {labels: {a: b}}\n")
	fact.List(t, printed(), "kube-controller-managerzzz-edits+json.yaml", "kube-controller-managerzzz-edits-doubtful+json.yaml")
}

// TestChangedPatches: values from today's patches aren't edits, even if other patches made the Pod. Other edits are still found.
func TestChangedPatches(t *testing.T) {
	lost := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "error StaticPodEdits", Facts: []string{"kube-apiserver"}, List: list}
	}
	s := phasetest.PlaneToUpgrade(t)
	s.Config.PatchesDir = "/patches"
	find := func(why string, want ...phasetest.FoundAs) {
		t.Helper()
		t.Run(why, func(t *testing.T) { phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), want...) })
	}
	patch := func(value string) string {
		return "{op: add, path: /spec/containers/0/command/-, value: " + value + "}"
	}
	s.EditPod(t, manifests.APIServerName, "cpu: 250m", "cpu: 300m")
	s.EditPod(t, manifests.APIServerName, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --v=4\n    - --profiling=false\n")
	s.Put(t, "/patches/kube-apiserver1.yaml", "spec: {containers: [{name: kube-apiserver, resources: {requests: {cpu: 400m}}}]}\n")
	s.Put(t, "/patches/kube-apiserver0+json.yaml", "["+patch("--v=2")+","+patch("--profiling=false")+"]\n")
	find("other patches")
	s.EditPod(t, manifests.APIServerName, "    tier: control-plane\n", "    tier: control-plane\n    team: mine\n")
	find("an edit beside them", lost("team: mine"))
	s.EditPod(t, manifests.APIServerName, "    team: mine\n", "")

	// The API server accepts the tokens of all these issuers, and signs with the first: the upgrade drops none.
	s.EditPod(t, manifests.APIServerName, "    - --service-account-issuer=", "    - --service-account-issuer=https://old\n    - --service-account-issuer=")
	const issuer = "--service-account-issuer=https://old"
	guarded := phasetest.FoundAs{Name: "error StaticPodProtection", Facts: []string{"kube-apiserver"}, List: issuer}
	find("a flag with several values", guarded)
	s.Put(t, "/patches/kube-apiserver2+json.yaml", "["+patch("--service-account-issuer=https://new")+"]\n")
	find("one of them from a patch", guarded)
}

// TestEditsOfOlderReleases: the extra or different parts in static Pods from kubeadm 1.35 and older aren't edits.
func TestEditsOfOlderReleases(t *testing.T) {
	const mount, volume = "    - mountPath: DIR\n      name: flexvolume-dir\n", "  - hostPath:\n      path: DIR\n      type: DirectoryOrCreate\n    name: flexvolume-dir\n"
	const kubeadmDir = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
	flexVolumes := func(dir string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, manifests.ControllerManagerName, "    volumeMounts:\n", "    volumeMounts:\n"+strings.ReplaceAll(mount, "DIR", dir))
			s.EditPod(t, manifests.ControllerManagerName, "  volumes:\n", "  volumes:\n"+strings.ReplaceAll(volume, "DIR", dir))
		}
	}
	withImage := func(suffix string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) {
			flexVolumes(kubeadmDir)(t, s)
			s.EditPod(t, manifests.ControllerManagerName, ":v1.35.8", ":v1.35.8"+suffix)
		}
	}
	for name, row := range map[string]struct {
		from   string
		change func(*testing.T, *phasetest.Stage)
		edits  int // and warnings
	}{
		"flex volumes beside a digest":       {"v1.35.8", withImage("@sha256:" + strings.Repeat("0", 64)), 1},
		"flex volumes beside build metadata": {"v1.35.8", withImage("_own.1"), 1},
		"flex volumes of 1.35":               {"v1.35.8", flexVolumes(kubeadmDir), 0},
		"flex volumes somewhere else":        {"v1.35.8", flexVolumes("/opt/flex"), 1},
		"flex volumes that were kept":        {"v1.36.4", flexVolumes(kubeadmDir), 1},
		"flex volumes and another edit": {"v1.35.8", func(t *testing.T, s *phasetest.Stage) {
			flexVolumes(kubeadmDir)(t, s)
			s.EditPod(t, manifests.ControllerManagerName, "cpu: 200m", "cpu: 2")
		}, 1},
		"experimental flags of etcd": {"v1.34.9", func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, manifests.EtcdName, "--feature-gates=InitialCorruptCheck=true", "--experimental-initial-corrupt-check=true")
			s.EditPod(t, manifests.EtcdName, "--watch-progress-notify-interval=5s", "--experimental-watch-progress-notify-interval=5s")
		}, 0},
		"another value": {"v1.34.9", func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, manifests.EtcdName, "--watch-progress-notify-interval=5s", "--experimental-watch-progress-notify-interval=9s")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneFrom(t, row.from)
			row.change(t, s)
			if found := StaticPodFindings(t.Context(), s.Env); len(found) != row.edits {
				t.Errorf("found %q", phasetest.InWords(found))
			}
		})
	}
	t.Run("flex volume plugins", func(t *testing.T) {
		s := phasetest.PlaneFrom(t, "v1.35.8")
		flexVolumes(kubeadmDir)(t, s)
		s.Put(t, kubeadmDir+"/example~nfs/nfs", "")
		phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env),
			phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{"kube-controller-manager"}, List: kubeadmDir + "/example~nfs"})
	})
	t.Run("flex volumes where a flag says", func(t *testing.T) {
		s := phasetest.PlaneFrom(t, "v1.35.8", config.Arg{Name: "flex-volume-plugin-dir", Value: "/opt/flex"})
		flexVolumes("/opt/flex")(t, s)
		if found := StaticPodFindings(t.Context(), s.Env); len(found) > 0 {
			t.Errorf("found %q", phasetest.InWords(found))
		}
	})
}

// TestEnvironmentIsNoEdit: CA directories and proxies of the host, past or present, aren't edits. Dropped proxies are reported.
func TestEnvironmentIsNoEdit(t *testing.T) {
	const added = "    env:\n    - name: HTTPS_PROXY\n      value: http://user:secret@192.0.2.1\n    image:"
	withProxy := func(t *testing.T, s *phasetest.Stage) { s.EditPod(t, "kube-scheduler", "    image:", added) }
	lost := []phasetest.FoundAs{{Name: "warning StaticPodEdits", Facts: []string{"HTTPS_PROXY", "kube-scheduler"}}}
	for name, row := range map[string]struct {
		change  func(*testing.T, *phasetest.Stage)
		environ []string
		want    []phasetest.FoundAs
	}{
		"a directory of CAs is new": {func(t *testing.T, s *phasetest.Stage) { s.Put(t, "/usr/local/share/ca-certificates/own.crt", "") }, nil, nil},
		"a directory of CAs went": {func(t *testing.T, s *phasetest.Stage) {
			for _, name := range []string{manifests.APIServerName, manifests.ControllerManagerName} {
				s.EditPod(t, name, "    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: /etc/pki/ca-trust, name: etc-pki-ca-trust, readOnly: true}\n")
				s.EditPod(t, name, "  volumes:\n", "  volumes:\n  - {name: etc-pki-ca-trust, hostPath: {path: /etc/pki/ca-trust, type: DirectoryOrCreate}}\n")
			}
		}, nil, nil},
		"the CA's key went": {func(t *testing.T, s *phasetest.Stage) {
			s.Play(t, phasetest.Pick(bootstrap.Init(), "certs")...)
			if err := os.Remove(filepath.Join(s.Root, "/etc/kubernetes/pki/ca.key")); err != nil {
				t.Fatal(err)
			}
		}, nil, nil},
		"a proxy is new":     {func(*testing.T, *phasetest.Stage) {}, []string{"HTTPS_PROXY=http://192.0.2.1"}, nil},
		"a proxy stays":      {withProxy, []string{"HTTPS_PROXY=http://user:secret@192.0.2.1"}, nil},
		"a proxy goes":       {withProxy, nil, lost},
		"a proxy is another": {withProxy, []string{"HTTPS_PROXY=http://192.0.2.2"}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.FakeHost.Has.Environ = row.environ
			row.change(t, s)
			found := StaticPodFindings(t.Context(), s.Env)
			phasetest.CheckFindings(t, found, row.want...)
			fact.NotIn(t, strings.Join(phasetest.InWords(found), "\n"), "secret")
			if kept, doubtful := editNames(t, s); kept != nil || doubtful != nil {
				t.Errorf("patches %q, %q", kept, doubtful)
			}
		})
	}
}
