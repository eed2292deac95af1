// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// planeToExamine is a control plane of v1.36.4 that is to be upgraded to v1.37.2, as Slipway made it.
func planeToExamine(t *testing.T) *stage { return planeFrom(t, "v1.36.4") }

// planeFrom is a control plane of another version, whose controller manager has these extra flags.
func planeFrom(t *testing.T, from string, extra ...config.Arg) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.Cluster.ControllerManager.ExtraArgs = append(s.Config.Cluster.ControllerManager.ExtraArgs, extra...)
	s.Config.Upgrade = &config.Upgrade{From: from, Version: "v1.37.2", First: true, Etcd: true, CertificateRenewal: true}
	s.host.Has.Time = time.Now()
	view, err := hostView(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Cluster.KubernetesVersion = from
	for _, name := range manifests.Components(s.Config) {
		data, err := staticPodYAML(s.Env, name, view, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.put(t, "/etc/kubernetes/manifests/"+name+".yaml", string(data))
	}
	s.Config.Cluster.KubernetesVersion = "v1.37.2"
	return s
}

// editPod replaces text in a static Pod.
func (s *stage) editPod(t *testing.T, component, old, text string) {
	t.Helper()
	path := "/etc/kubernetes/manifests/" + component + ".yaml"
	before := s.get(t, path)
	if !strings.Contains(before, old) {
		t.Fatalf("%s does not have %q:\n%s", path, old, before)
	}
	s.put(t, path, strings.Replace(before, old, text, 1))
}

// TestEditPatches: with the patches that the plan prints, the upgrade keeps each edit, and the check of edits is content.
func TestEditPatches(t *testing.T) {
	const apiServer = manifests.APIServerName
	for name, row := range map[string]struct {
		edit func(*testing.T, *stage)
		want []string                  // names of the patches
		kept func(pod corev1.Pod) bool // by the upgrade
	}{
		"nothing": {func(*testing.T, *stage) {}, nil, func(corev1.Pod) bool { return true }},
		"a new flag": {func(t *testing.T, s *stage) {
			s.editPod(t, apiServer, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --profiling=false\n")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool { return slices.Contains(p.Spec.Containers[0].Command, "--profiling=false") }},
		"a changed flag": {func(t *testing.T, s *stage) {
			s.editPod(t, apiServer, "--enable-admission-plugins=NodeRestriction", "--enable-admission-plugins=NodeRestriction,AlwaysPullImages")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool {
			c := p.Spec.Containers[0].Command
			return slices.Contains(c, "--enable-admission-plugins=NodeRestriction,AlwaysPullImages") && !slices.Contains(c, "--enable-admission-plugins=NodeRestriction")
		}},
		"flags that went": {func(t *testing.T, s *stage) {
			s.editPod(t, apiServer, "    - --allow-privileged=true\n", "")
			s.editPod(t, apiServer, "    - --secure-port=6443\n", "")
		}, []string{"kube-apiserver0+json.yaml"}, func(p corev1.Pod) bool {
			c := p.Spec.Containers[0].Command
			return !slices.Contains(c, "--allow-privileged=true") && !slices.Contains(c, "--secure-port=6443") && slices.Contains(c, "--enable-bootstrap-token-auth=true")
		}},
		"resources and a label": {func(t *testing.T, s *stage) {
			s.editPod(t, "kube-scheduler", "cpu: 100m", "cpu: 300m")
			s.editPod(t, "kube-scheduler", "    tier: control-plane\n", "    tier: control-plane\n    team: mine\n")
		}, []string{"kube-scheduler0+strategic.yaml"}, func(p corev1.Pod) bool {
			return p.Spec.Containers[0].Resources.Requests.Cpu().String() == "300m" && p.Labels["team"] == "mine"
		}},
		"a volume": {func(t *testing.T, s *stage) {
			s.editPod(t, apiServer, "    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: /audit, name: audit}\n")
			s.editPod(t, apiServer, "  volumes:\n", "  volumes:\n  - {name: audit, hostPath: {path: /var/log/audit}}\n")
		}, []string{"kube-apiserver0+strategic.yaml"}, func(p corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "audit" }) && len(p.Spec.Volumes) > 1
		}},
		"another registry": {func(t *testing.T, s *stage) {
			s.editPod(t, apiServer, "image: registry.k8s.io/kube-apiserver:", "image: example.com/kube-apiserver:")
		}, []string{"kube-apiserver0+strategic.yaml"}, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image == "example.com/kube-apiserver:v1.37.2" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			row.edit(t, s)
			patches, err := PatchesOfEdits(t.Context(), s.Env)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range patches.Kept {
				names = append(names, f.Name)
				s.put(t, "/patches/"+f.Name, string(f.Data))
			}
			if !slices.Equal(names, row.want) {
				t.Fatalf("patches %q, want %q", names, row.want)
			}
			if names == nil {
				return
			}
			if found := staticPodEdits(t.Context(), s.Env); len(found) != 1 {
				t.Errorf("without the patches: %v", found)
			}
			s.Config.PatchesDir = "/patches"
			if found := staticPodEdits(t.Context(), s.Env); len(found) != 0 {
				t.Errorf("with the patches: %v", found)
			}
			list, err := UpgradedManifests(s.Env)
			if err != nil {
				t.Fatal(err)
			}
			component, _, _ := strings.Cut(names[0], "0+")
			for _, m := range list {
				var pod corev1.Pod
				if err := yaml.Unmarshal(m.After, &pod); err != nil {
					t.Fatal(err)
				}
				if pod.Name == component && (!row.kept(pod) || !strings.HasSuffix(pod.Spec.Containers[0].Image, ":v1.37.2")) {
					t.Errorf("lost in:\n%s", m.After)
				}
			}
		})
	}
}

// equipped is what the runtime lacks, and the space on all disks.
type equipped struct {
	host    *teststage.Host
	missing string
	free    uint64
}

func (e equipped) set() {
	e.host.On.ImagePresent = func(_ context.Context, _, image string) (bool, error) {
		return !strings.Contains(image, e.missing), nil
	}
	e.host.Has.ImageDir, e.host.Has.Space["/"] = "/", host.Space{Free: e.free, Total: 100 << 30}
}

func TestHostFindings(t *testing.T) {
	s := planeToExamine(t)
	// Nothing is wrong.
	equipped{s.host, "none", 50 << 30}.set()
	healthy := func() []etcd.Health {
		var all []etcd.Health
		for i, name := range []string{"cp-1", "cp-2", "cp-3"} {
			all = append(all, etcd.Health{Member: etcd.Member{ID: uint64(i), Name: name, PeerURL: "https://192.0.2.1" + string(rune('1'+i)) + ":2380"},
				Answers: true, Status: etcd.Status{Version: "3.6.12", Size: 1 << 30, Quota: 2 << 30}})
		}
		return all
	}
	for name, row := range map[string]struct {
		change func(members []etcd.Health)
		host   equipped
		want   []foundAs
	}{
		"nothing":  {func([]etcd.Health) {}, equipped{s.host, "none", 50 << 30}, nil},
		"an image": {func([]etcd.Health) {}, equipped{s.host, "coredns", 50 << 30}, []foundAs{{name: "warning ImagesPresent", list: "registry.k8s.io/coredns/coredns:v1.14.6"}}},
		"a full disk": {func([]etcd.Health) {}, equipped{s.host, "none", 1 << 30}, []foundAs{
			{name: "error EtcdSnapshotSpace", facts: []string{"/etc/kubernetes", "1024 MiB free", "10 GiB", "10 %"}}}},
		"a tenth would not stay free": {func([]etcd.Health) {}, equipped{s.host, "none", 11<<30 - 1}, []foundAs{{name: "error EtcdSnapshotSpace"}}},
		"a tenth stays free":          {func([]etcd.Health) {}, equipped{s.host, "none", 11 << 30}, nil},
		"the images fit, and the snapshot too, but not both": {func([]etcd.Health) {}, equipped{s.host, "coredns", 11<<30 + 400<<20}, []foundAs{
			{name: "warning DiskSpace-runtime"}, {name: "warning ImagesPresent"},
			{name: "error EtcdSnapshotSpace", facts: []string{"/etc/kubernetes", "1024 MiB", "500 MiB"}}}},
		"the images are on another disk": {func([]etcd.Health) {
			s.host.Has.ImageDir = "/images"
			s.host.Has.Space["/images"] = host.Space{Free: 50 << 30, Total: 100 << 30, Device: 2}
			s.put(t, "/images/x", "")
		}, equipped{s.host, "coredns", 11<<30 + 400<<20}, []foundAs{{name: "warning ImagesPresent"}}},
		"etcd does not say how large it is": {func(m []etcd.Health) { m[0].Answers = false }, equipped{s.host, "none", 50 << 30},
			[]foundAs{{name: "unchecked EtcdSnapshotSpace"}}},
		"another member is down": {func(m []etcd.Health) { m[1].Err = errors.New("no answer") }, equipped{s.host, "none", 50 << 30},
			[]foundAs{{name: "warning EtcdHealth", facts: []string{"member cp-2", "no answer"}}}},
		"this member is down": {func(m []etcd.Health) { m[0].Err = errors.New("no answer") }, equipped{s.host, "none", 50 << 30},
			[]foundAs{{name: "warning EtcdHealth", facts: []string{"member cp-1", "no answer"}}}},
		"a learner": {func(m []etcd.Health) { m[2].Learner = true }, equipped{s.host, "none", 50 << 30},
			[]foundAs{{name: "warning EtcdLearner", facts: []string{"member cp-3"}}}},
		"an alarm": {func(m []etcd.Health) {
			for i := range m {
				m[i].Status.Alarms = []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}}
			}
		}, equipped{s.host, "none", 50 << 30}, []foundAs{{name: "error EtcdAlarm", facts: []string{"member cp-2", "NOSPACE"}}}},
		"little space in etcd": {func(m []etcd.Health) { m[1].Status.Size = 2<<30 - 1 }, equipped{s.host, "none", 50 << 30},
			[]foundAs{{name: "warning EtcdSpace", facts: []string{"member cp-2", "2047", "2048 MiB"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			row.host.set()
			members := healthy()
			row.change(members)
			found := slices.Concat(imageFindings(t.Context(), s.Env), etcdFindings(members),
				snapshotSpace(s.Env, members, missingImagesNeed(t.Context(), s.Env, s.Config.Images())...))
			checkFindings(t, found, row.want...)
		})
	}
}

// TestUpgradeFindingsShown has everything that the checks of a host find in one list.
func TestUpgradeFindingsShown(t *testing.T) {
	s := planeToExamine(t)
	equipped{s.host, "coredns", 1 << 30}.set()
	s.editPod(t, "kube-scheduler", "cpu: 100m", "cpu: 300m")
	s.put(t, "/etc/kubernetes/manifests/notes.txt", "remember")
	s.put(t, "/etc/kubernetes/manifests/etcd.yaml.bak", s.get(t, "/etc/kubernetes/manifests/etcd.yaml"))
	of := func(id uint64, name string, change func(*etcd.Health)) etcd.Health {
		m := etcd.Health{Member: etcd.Member{ID: id, Name: name}, Answers: true, Status: etcd.Status{Version: "3.6.12", Size: 1 << 30, Quota: 2 << 30}}
		change(&m)
		return m
	}
	members := []etcd.Health{
		of(1, "cp-1", func(m *etcd.Health) { m.Status.Alarms = []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}} }),
		of(2, "cp-2", func(m *etcd.Health) { m.Err = errors.New("no answer") }),
		of(3, "cp-3", func(m *etcd.Health) { m.Status.Size = 2<<30 - 1 }),
		of(4, "cp-4", func(m *etcd.Health) { m.Learner = true }),
	}
	var all strings.Builder
	for _, f := range slices.Concat(staticPodEdits(t.Context(), s.Env), strayManifests(s.Env), imageFindings(t.Context(), s.Env), etcdFindings(members),
		snapshotSpace(s.Env, members, missingImagesNeed(t.Context(), s.Env, s.Config.Images())...)) {
		all.WriteString(f.String() + "\n")
	}
	shows(t, "upgrade-findings", all.String())
}

func inWords(found []preflight.Finding) []string {
	var list []string
	for _, f := range found {
		list = append(list, severityOf(f)+" "+f.Check+": "+f.Message)
	}
	return list
}

// TestStrayManifests: static Pods of the operator's are left alone.
func TestStrayManifests(t *testing.T) {
	s := planeToExamine(t)
	dir := "/etc/kubernetes/manifests/"
	s.put(t, dir+"dns.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: dns}\n")
	s.put(t, dir+".hidden", "x")
	if found := strayManifests(s.Env); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	s.put(t, dir+"etcd.yaml.bak", s.get(t, dir+"etcd.yaml"))
	s.put(t, dir+"notes.txt", "remember")
	checkFindings(t, strayManifests(s.Env), foundAs{name: "error StrayManifest", facts: []string{dir + "etcd.yaml.bak", "of etcd"}},
		foundAs{name: "warning StrayManifest", facts: []string{dir + "notes.txt", "Pod"}})
}

// TestCertificateFindings: what the upgrade renews is not worth a word.
func TestCertificateFindings(t *testing.T) {
	s := planeToExamine(t)
	s.play(t, pick(Init(), "certs")...)
	if found := certificateFindings(s.Env); len(found) > 0 {
		t.Errorf("found %q", inWords(found))
	}
	s.host.Has.Time = time.Now().Add(360 * 24 * time.Hour)
	if found := certificateFindings(s.Env); len(found) > 0 {
		t.Errorf("although they are renewed: %q", inWords(found))
	}
	s.Config.Upgrade.CertificateRenewal = false
	if found := certificateFindings(s.Env); !slices.ContainsFunc(found, func(f preflight.Finding) bool {
		return severityOf(f)+" "+f.Check == "warning CertificateExpiration" && slices.Contains(strings.Fields(f.Message), "apiserver")
	}) {
		t.Errorf("without renewal: %q", inWords(found))
	}
	if err := os.Remove(filepath.Join(s.root, "/etc/kubernetes/pki/etcd/ca.key")); err != nil {
		t.Fatal(err)
	}
	s.host.Has.Time, s.Config.Upgrade.CertificateRenewal = time.Now(), true
	checkFindings(t, certificateFindings(s.Env), foundAs{name: "warning CertificateAuthorityKey",
		facts: []string{"CA etcd-ca", "renew apiserver-etcd-client, etcd-healthcheck-client, etcd-peer, etcd-server"}})
}

// TestKubeletBreakages: `upgrade node` checks the flags and the configuration with which its kubelet will be started, without
// those that the upgrade removes.
func TestKubeletBreakages(t *testing.T) {
	s := planeToExamine(t)
	s.Config.Upgrade.First = false
	equipped{s.host, "none", 50 << 30}.set()
	ask := func() []preflight.Finding { return ownBreakages(t.Context(), s.Env) }
	checkFindings(t, ask(), foundAs{name: "unchecked not-checked", facts: []string{"no Node cp-1"}})
	s.hasKubelet(t, "v1.34.9")
	s.put(t, "/sys/fs/cgroup/cgroup.controllers", "cpu\n")
	s.put(t, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.10 --v=2"`)
	s.put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nfeatureGates: {SidecarContainers: true}\n") // written again
	checkFindings(t, ask())
	s.put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--boot-id-file=/x --feature-gates=SidecarContainers=true\n")
	checkFindings(t, ask(), foundAs{name: "error flag-removed", facts: []string{"kubelet on cp-1", "kubelet 1.37", "--boot-id-file"}},
		foundAs{name: "error gate-removed", facts: []string{"kubelet on cp-1", "kubelet 1.37", "SidecarContainers"}})
}

// TestOwnControlPlane: `upgrade node` checks the static Pods that it will write, with the patches of this host, which no other
// node can see.
func TestOwnControlPlane(t *testing.T) {
	s := planeToExamine(t)
	s.Config.Upgrade.First = false
	equipped{s.host, "none", 50 << 30}.set()
	s.hasKubelet(t, "v1.37.2")
	s.editPod(t, "kube-scheduler", "    - --leader-elect=true\n", "    - --leader-elect=true\n    - --feature-gates=SidecarContainers=true\n") // will be lost
	if got := inWords(ownBreakages(t.Context(), s.Env)); len(got) > 0 {
		t.Errorf("without patches: %q", got)
	}
	for component, flag := range map[string]string{"kube-controller-manager": "--concurrent-service-syncs=2", "etcd": "--experimental-initial-corrupt-check=true"} {
		s.put(t, "/patches/"+component+"0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: "+flag+"}\n")
	}
	s.Config.PatchesDir = "/patches"
	want := []foundAs{{name: "error flag-removed", facts: []string{"etcd on cp-1", "etcd 3.7", "--experimental-initial-corrupt-check"}},
		{name: "error flag-removed", facts: []string{"kube-controller-manager on cp-1", "kube-controller-manager 1.37", "--concurrent-service-syncs"}}}
	got := ownBreakages(t.Context(), s.Env)
	slices.SortFunc(got, func(a, b preflight.Finding) int { return strings.Compare(a.Message, b.Message) })
	checkFindings(t, got, want...)
	s.Config.Upgrade.Etcd = false
	checkFindings(t, ownBreakages(t.Context(), s.Env), want[1:]...)
}

// hasKubelet adds this host's Node, whose kubelet has a version.
func (s *stage) hasKubelet(t *testing.T, version string) {
	t.Helper()
	node := cluster.NewNode("cp-1")
	node.Status.NodeInfo.KubeletVersion = version
	if s.Config.ControlPlane {
		node.Labels = map[string]string{cluster.LabelControlPlane: ""}
	}
	if err := s.api.Ensure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// TestNodeFindings: `upgrade node` looks at its own control plane, because `upgrade apply` could not. Images that are missing
// are pulled next.
func TestNodeFindings(t *testing.T) {
	const stray = "/etc/kubernetes/manifests/kube-scheduler.yaml.bak"
	down := map[string]error{"cp-2": errors.New("no answer")}
	strays := foundAs{name: "error StrayManifest", facts: []string{stray}}
	for name, row := range map[string]struct {
		worker  bool
		down    map[string]error
		missing string
		kubelet string // what somebody has added to its configuration
		want    []foundAs
	}{
		"a stray manifest":       {false, nil, "none", "", []foundAs{strays}},
		"a missing image":        {false, nil, "coredns", "", []foundAs{strays}},
		"another member is down": {false, down, "none", "", []foundAs{strays, {name: "warning EtcdHealth", facts: []string{"member cp-2"}}}},
		"on a worker":            {true, down, "none", "", nil},
		"edits on a worker": {true, nil, "none", "maxPods: 200\nsystemReserved: {memory: 1Gi}\n",
			[]foundAs{{name: "error KubeletConfigEdits", facts: []string{"/var/lib/kubelet/config.yaml"}, list: "maxPods, systemReserved"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			s.play(t, pick(Init(), "certs", "kubeconfig")...)
			s.Config.Upgrade.First, s.Config.ControlPlane = false, !row.worker
			equipped{s.host, row.missing, 50 << 30}.set()
			s.Etcd = &members{down: row.down, list: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: ownPeer}, {ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}}
			s.hasKubelet(t, "v1.37.2")
			s.put(t, stray, s.get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"))
			s.put(t, "/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+row.kubelet)
			var found []preflight.Finding
			for _, q := range upgradeBreakages(t.Context(), s.Env) {
				found = append(found, q.Ask(t.Context())...)
			}
			checkFindings(t, found, row.want...)
		})
	}
}

// TestKubeletEdits: what the cluster or the node's own configuration says is no edit, and the patch keeps the others.
func TestKubeletEdits(t *testing.T) {
	s := planeToExamine(t)
	s.Config.Upgrade.First = false
	cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\nregistryBurst: 3\n")
	if err := s.api.Ensure(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	s.put(t, "/var/lib/kubelet/instance-config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///mine\n")
	const shared = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix:///mine\nmaxPods: 99\n"
	s.put(t, "/var/lib/kubelet/config.yaml", shared)
	if found := kubeletEditFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("found %q", inWords(found))
	}
	s.put(t, "/var/lib/kubelet/config.yaml", shared+"eventBurst: 7\nregistryBurst: 4\n")
	checkFindings(t, kubeletEditFindings(t.Context(), s.Env),
		foundAs{name: "error KubeletConfigEdits", facts: []string{"/var/lib/kubelet/config.yaml"}, list: "eventBurst, registryBurst"})
	patches, err := PatchesOfEdits(t.Context(), s.Env)
	files := patches.Kept
	if err != nil || len(files) != 1 || files[0].Name != "kubeletconfiguration0+merge.yaml" {
		t.Fatalf("%v, %v", files, err)
	}
	s.put(t, "/patches/"+files[0].Name, string(files[0].Data))
	s.Config.PatchesDir = "/patches"
	if found := kubeletEditFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("with the patch: %q", inWords(found))
	}
}

// TestKubeletEditsInForm: what is zero, and how something is written, is no edit. A patch also keeps what somebody has taken out of
// a field, and the finding has the whole patch, without secrets.
func TestKubeletEditsInForm(t *testing.T) {
	const document = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
	s := planeToExamine(t)
	s.Config.Upgrade.First = false
	s.Config.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}
	s.put(t, "/var/lib/kubelet/config.yaml", document+"syncFrequency: 0s\ncrashLoopBackOff: {}\nmaxPods: 0\nmemorySwap: {}\nevictionHard: {\"nodefs.available\": '10%', \"memory.available\": 100Mi}\n")
	if found := kubeletEditFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("found %q", inWords(found))
	}
	s.put(t, "/var/lib/kubelet/config.yaml", document+"evictionHard: {memory.available: 200Mi}\nstaticPodURLHeader: {Authorization: [Bearer hidden-value]}\n")
	found := kubeletEditFindings(t.Context(), s.Env)
	checkFindings(t, found, foundAs{name: "error KubeletConfigEdits", list: "evictionHard, staticPodURLHeader"})
	fact.In(t, found[0].Remedy, "kubeletconfiguration0+merge.yaml", "memory.available: 200Mi", "nodefs.available: null", "--ignore-preflight-errors=KubeletConfigEdits")
	fact.NotIn(t, found[0].Remedy, "hidden-value")
	patches, err := PatchesOfEdits(t.Context(), s.Env)
	if err != nil || len(patches.Kept) != 1 {
		t.Fatalf("%v, %v", patches, err)
	}
	s.put(t, "/patches/"+patches.Kept[0].Name, string(patches.Kept[0].Data))
	s.Config.PatchesDir = "/patches"
	if found := kubeletEditFindings(t.Context(), s.Env); len(found) > 0 {
		t.Errorf("with the patch: %q", inWords(found))
	}
}

// TestChangedKubeletConfiguration: an upgrade brings a change of ConfigMap kubelet-config to each node, so what the file has from
// before isn't an error. What is newer than that change is.
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
		"before the first control plane was upgraded": {metav1.ObjectMeta{Annotations: map[string]string{changedByOperator: "2026-11-01T13:00:00Z"},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("slipway", fields, 2*time.Hour)}}, "warning", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			s.Config.Upgrade.First = false
			cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\n")
			cm.Annotations, cm.ManagedFields = row.stored.Annotations, row.stored.ManagedFields
			if err := s.api.Ensure(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			s.put(t, path, "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 50\n")
			if err := os.Chtimes(filepath.Join(s.root, path), time.Time{}, manifestsWritten); err != nil {
				t.Fatal(err)
			}
			checkFindings(t, kubeletEditFindings(t.Context(), s.Env), foundAs{name: row.want + " KubeletConfigEdits", facts: []string{path}, list: "maxPods"})
			kept, doubtful := s.editNames(t)
			if len(kept) == len(doubtful) || row.doubtful != slices.Contains(doubtful, "kubeletconfiguration0-doubtful+merge.yaml") {
				t.Errorf("patches %q, %q", kept, doubtful)
			}
		})
	}
}

// TestEditedKubeletConfiguration: where it's known that somebody has edited the file, a later change of ConfigMap kubelet-config doesn't
// make the error a warning. But the patch is doubtful: it may also keep what comes from before that change. Removing a field is an edit, too; a field that the ConfigMap has got since is none.
func TestEditedKubeletConfiguration(t *testing.T) {
	const path, fields = "/var/lib/kubelet/config.yaml", `{"f:data":{"f:kubelet":{}}}`
	const head = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
	written := func(t *testing.T, s *stage) { s.writtenByUpgrade(t, path) }
	for name, row := range map[string]struct {
		made    string // what is in the file
		then    func(*testing.T, *stage)
		edited  string // what is in it now; nothing, if nobody has edited it
		changed bool   // the ConfigMap, since
		want    []foundAs
	}{
		"edited, and the ConfigMap changed":    {"maxPods: 99\neventBurst: 5\n", written, "maxPods: 50\neventBurst: 5\n", true, []foundAs{{name: "error KubeletConfigEdits", list: "maxPods"}}},
		"the ConfigMap changed":                {"maxPods: 98\neventBurst: 5\n", written, "", true, []foundAs{{name: "warning KubeletConfigEdits", list: "maxPods"}}},
		"who knows, and the ConfigMap changed": {"maxPods: 98\neventBurst: 5\n", nil, "", true, []foundAs{{name: "warning KubeletConfigEdits", list: "maxPods"}}},
		"removed":                              {"maxPods: 99\neventBurst: 5\n", written, "eventBurst: 5\n", false, []foundAs{{name: "error KubeletConfigEdits", list: "maxPods"}}},
		"removed, and the ConfigMap changed":   {"maxPods: 99\neventBurst: 5\n", written, "eventBurst: 5\n", true, []foundAs{{name: "error KubeletConfigEdits", list: "maxPods"}}},
		"removed, as far as anybody knows":     {"eventBurst: 5\n", nil, "", false, []foundAs{{name: "error KubeletConfigEdits", list: "maxPods"}}},
		"the ConfigMap has got one":            {"eventBurst: 5\n", written, "", true, nil},
		"the ConfigMap may have got one":       {"eventBurst: 5\n", nil, "", true, []foundAs{{name: "warning KubeletConfigEdits", list: "maxPods"}}},
		"the cluster's upgrade has added one":  {"eventBurst: 5\n", written, "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			s.Config.Upgrade.First = false
			s.Config.Kubelet.MaxPods, s.Config.Kubelet.EventBurst = 99, 5
			cm := fixture.ConfigMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nmaxPods: 99\neventBurst: 5\n")
			if row.changed {
				cm.ManagedFields = []metav1.ManagedFieldsEntry{manager("kubectl-edit", fields, time.Hour)}
			}
			if err := s.api.Ensure(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			s.put(t, path, head+row.made)
			if row.then != nil {
				row.then(t, s)
			}
			if row.edited != "" {
				s.put(t, path, head+row.edited)
			}
			if err := os.Chtimes(filepath.Join(s.root, path), time.Time{}, manifestsWritten); err != nil {
				t.Fatal(err)
			}
			checkFindings(t, kubeletEditFindings(t.Context(), s.Env), row.want...)
			if len(row.want) == 0 || row.want[0].name != "error KubeletConfigEdits" {
				return
			}
			patches, err := PatchesOfEdits(t.Context(), s.Env)
			list, others := patches.Kept, patches.Doubtful
			if row.changed {
				list, others = others, list
			}
			if err != nil || len(list) != 1 || len(others) > 0 {
				t.Fatalf("%v, %v", patches, err)
			}
			s.put(t, "/patches/"+list[0].Name, string(list[0].Data))
			s.Config.PatchesDir = "/patches"
			checkFindings(t, kubeletEditFindings(t.Context(), s.Env))
		})
	}
}

// TestEtcdQuorum: `upgrade plan` and `upgrade apply` judge by one rule, and only an upgrade that restarts etcd needs the other
// members.
func TestEtcdQuorum(t *testing.T) {
	refused := func(facts ...string) []foundAs { return []foundAs{{name: "error EtcdQuorum", facts: facts}} }
	for name, row := range map[string]struct {
		members, down int // beside this node's
		change        func(*stage)
		want          []foundAs
	}{
		"alone":                   {0, 0, nil, nil},
		"three, all work":         {2, 0, nil, nil},
		"three, one is down":      {2, 1, nil, refused("3 members", "2 besides")},
		"four, one is down":       {3, 1, nil, refused("4 members", "3 besides")},
		"five, one is down":       {4, 1, nil, nil},
		"without etcd":            {2, 1, func(s *stage) { s.Config.Upgrade.Etcd = false }, nil},
		"etcd is what it will be": {2, 1, func(s *stage) { s.Config.Cluster.Etcd.Local.ImageTag = "3.6.8-0" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeToExamine(t)
			s.editPod(t, "etcd", "etcd:3.7.0-0", "etcd:3.6.8-0")
			if row.change != nil {
				row.change(s)
			}
			s.host.Runs(time.Now().Add(time.Hour), "etcd")
			asked := &members{list: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: ownPeer}}, down: map[string]error{}}
			for i := range row.members {
				m := etcd.Member{ID: uint64(2 + i), Name: fmt.Sprintf("cp-%d", 2+i), PeerURL: fmt.Sprintf("https://192.0.2.%d:2380", 12+i)}
				asked.list = append(asked.list, m)
				if i < row.down {
					asked.down[m.Name] = errors.New("no answer")
				}
			}
			s.Etcd = asked
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			known, err := asked.Health(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			plan := etcdQuorum(s.Env, func(context.Context) error { return knownPeers(s.Env, known) })
			i := slices.IndexFunc(upgradeQuestions(s.Env), func(q preflight.Question) bool { return q.Name == quorumCheck })
			apply := upgradeQuestions(s.Env)[i]
			for command, q := range map[string]preflight.Question{"plan": plan, "apply": apply} {
				found := q.Ask(t.Context())
				for i := range found {
					found[i].Check = q.Name
				}
				t.Run(command, func(t *testing.T) { checkFindings(t, found, row.want...) })
			}
		})
	}
}
