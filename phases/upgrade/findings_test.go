// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

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

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// equipped is an image that the runtime lacks, and the free space on all disks.
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
	s := phasetest.PlaneToUpgrade(t)
	equipped{s.FakeHost, "none", 50 << 30}.set()
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
		want   []phasetest.FoundAs
	}{
		"nothing":  {func([]etcd.Health) {}, equipped{s.FakeHost, "none", 50 << 30}, nil},
		"an image": {func([]etcd.Health) {}, equipped{s.FakeHost, "coredns", 50 << 30}, []phasetest.FoundAs{{Name: "warning ImagesPresent", List: "registry.k8s.io/coredns/coredns:v1.14.6"}}},
		"a full disk": {func([]etcd.Health) {}, equipped{s.FakeHost, "none", 1 << 30}, []phasetest.FoundAs{
			{Name: "error EtcdSnapshotSpace", Facts: []string{"/etc/kubernetes", "1024 MiB free", "10 GiB", "10 %"}}}},
		"a tenth would not stay free": {func([]etcd.Health) {}, equipped{s.FakeHost, "none", 11<<30 - 1}, []phasetest.FoundAs{{Name: "error EtcdSnapshotSpace"}}},
		"a tenth stays free":          {func([]etcd.Health) {}, equipped{s.FakeHost, "none", 11 << 30}, nil},
		"the images fit, and the snapshot too, but not both": {func([]etcd.Health) {}, equipped{s.FakeHost, "coredns", 11<<30 + 400<<20}, []phasetest.FoundAs{
			{Name: "warning DiskSpace-runtime"}, {Name: "warning ImagesPresent"},
			{Name: "error EtcdSnapshotSpace", Facts: []string{"/etc/kubernetes", "1024 MiB", "500 MiB"}}}},
		"the images are on another disk": {func([]etcd.Health) {
			s.FakeHost.Has.ImageDir = "/images"
			s.FakeHost.Has.Space["/images"] = host.Space{Free: 50 << 30, Total: 100 << 30, Device: 2}
			s.Put(t, "/images/x", "")
		}, equipped{s.FakeHost, "coredns", 11<<30 + 400<<20}, []phasetest.FoundAs{{Name: "warning ImagesPresent"}}},
		"etcd does not say how large it is": {func(m []etcd.Health) { m[0].Answers = false }, equipped{s.FakeHost, "none", 50 << 30},
			[]phasetest.FoundAs{{Name: "unchecked EtcdSnapshotSpace"}}},
		"another member is down": {func(m []etcd.Health) { m[1].Err = errors.New("no answer") }, equipped{s.FakeHost, "none", 50 << 30},
			[]phasetest.FoundAs{{Name: "warning EtcdHealth", Facts: []string{"member cp-2", "no answer"}}}},
		"this member is down": {func(m []etcd.Health) { m[0].Err = errors.New("no answer") }, equipped{s.FakeHost, "none", 50 << 30},
			[]phasetest.FoundAs{{Name: "warning EtcdHealth", Facts: []string{"member cp-1", "no answer"}}}},
		"a learner": {func(m []etcd.Health) { m[2].Learner = true }, equipped{s.FakeHost, "none", 50 << 30},
			[]phasetest.FoundAs{{Name: "warning EtcdLearner", Facts: []string{"member cp-3"}}}},
		"an alarm": {func(m []etcd.Health) {
			for i := range m {
				m[i].Status.Alarms = []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}}
			}
		}, equipped{s.FakeHost, "none", 50 << 30}, []phasetest.FoundAs{{Name: "error EtcdAlarm", Facts: []string{"member cp-2", "NOSPACE"}}}},
		"an alarm of a former member": {func(m []etcd.Health) { m[0].Status.Alarms = []etcd.Alarm{{Member: 0xf0, Kind: "CORRUPT"}} },
			equipped{s.FakeHost, "none", 50 << 30}, []phasetest.FoundAs{{Name: "error EtcdAlarm", Facts: []string{"member f0", "CORRUPT"}}}},
		"little space in etcd": {func(m []etcd.Health) { m[1].Status.Size = 1639 << 20 }, equipped{s.FakeHost, "none", 50 << 30},
			[]phasetest.FoundAs{{Name: "warning EtcdSpace", Facts: []string{"member cp-2", "1639", "2048 MiB"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			row.host.set()
			members := healthy()
			row.change(members)
			found := slices.Concat(imageFindings(t.Context(), s.Env, s.Config.Images()), etcdFindings(members),
				backup.SnapshotSpace(s.Env, members, backup.MissingImagesNeed(t.Context(), s.Env, s.Config.Images())...))
			phasetest.CheckFindings(t, found, row.want...)
		})
	}
}

// TestUpgradeFindingsShown shows all kinds of findings about a host in one list.
func TestUpgradeFindingsShown(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	equipped{s.FakeHost, "coredns", 1 << 30}.set()
	s.EditPod(t, "kube-scheduler", "cpu: 100m", "cpu: 300m")
	s.Put(t, "/etc/kubernetes/manifests/notes.txt", "remember")
	s.Put(t, "/etc/kubernetes/manifests/etcd.yaml.bak", s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"))
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
	for _, f := range slices.Concat(edits.StaticPodFindings(t.Context(), s.Env), strayManifests(s.Env), imageFindings(t.Context(), s.Env, s.Config.Images()), etcdFindings(members),
		backup.SnapshotSpace(s.Env, members, backup.MissingImagesNeed(t.Context(), s.Env, s.Config.Images())...)) {
		all.WriteString(f.String() + "\n")
	}
	phasetest.Shows(t, "upgrade-findings", all.String())
}

// TestUnprovable: an upgrade is refused before it stops a component that answers its probe only with credentials.
func TestUnprovable(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	equipped{s.FakeHost, "none", 50 << 30}.set()
	s.FakeHost.On.Fetch = func(_ context.Context, p host.Probe) ([]byte, error) {
		if strings.Contains(p.URL, ":6443/") {
			return nil, &host.ProbeError{URL: p.URL, Status: 401}
		}
		return nil, nil
	}
	found := slices.DeleteFunc(hostFindings(t.Context(), s.Env, nil), func(f fault.Finding) bool { return f.Name != fault.ComponentProbe })
	phasetest.CheckFindings(t, found, phasetest.FoundAs{Name: "error ComponentProbe", Facts: []string{"kube-apiserver", "401"}})
	fact.Error(t, runUpgradePreflight(t.Context(), s.Env), fault.ComponentProbe)
}

// TestStrayManifests: the operator's own static Pods aren't reported.
func TestStrayManifests(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	dir := "/etc/kubernetes/manifests/"
	s.Put(t, dir+"dns.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: dns}\n")
	s.Put(t, dir+".hidden", "x")
	if found := strayManifests(s.Env); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	s.Put(t, dir+"etcd.yaml.bak", s.Get(t, dir+"etcd.yaml"))
	s.Put(t, dir+"notes.txt", "remember")
	phasetest.CheckFindings(t, strayManifests(s.Env), phasetest.FoundAs{Name: "error StrayManifest", Facts: []string{dir + "etcd.yaml.bak", "of etcd"}},
		phasetest.FoundAs{Name: "warning StrayManifest", Facts: []string{dir + "notes.txt", "Pod"}})
}

// TestCertificateFindings: certificates renewed by the upgrade aren't reported.
func TestCertificateFindings(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs")...)
	if found := certificateFindings(s.Env); len(found) > 0 {
		t.Errorf("found %q", phasetest.InWords(found))
	}
	s.FakeHost.Has.Time = time.Now().Add(360 * 24 * time.Hour)
	if found := certificateFindings(s.Env); len(found) > 0 {
		t.Errorf("although they are renewed: %q", phasetest.InWords(found))
	}
	s.Config.Upgrade.Etcd = false
	if found := certificateFindings(s.Env); len(found) != 2 || !strings.Contains(found[0].Message, " etcd-peer ") || !strings.Contains(found[1].Message, " etcd-server ") {
		t.Errorf("without etcd's upgrade: %q", phasetest.InWords(found))
	}
	s.Config.Upgrade.Etcd, s.Config.Upgrade.CertificateRenewal = true, false
	if found := certificateFindings(s.Env); !slices.ContainsFunc(found, func(f fault.Finding) bool {
		return string(f.Severity)+" "+f.Name == "warning CertificateExpiration" && slices.Contains(strings.Fields(f.Message), "apiserver")
	}) {
		t.Errorf("without renewal: %q", phasetest.InWords(found))
	}
	if err := os.Remove(filepath.Join(s.Root, "/etc/kubernetes/pki/etcd/ca.key")); err != nil {
		t.Fatal(err)
	}
	s.FakeHost.Has.Time, s.Config.Upgrade.CertificateRenewal = time.Now(), true
	phasetest.CheckFindings(t, certificateFindings(s.Env), phasetest.FoundAs{Name: "warning CertificateAuthorityKey",
		Facts: []string{"CA etcd-ca", "renew apiserver-etcd-client, etcd-healthcheck-client, etcd-peer, etcd-server"}})
}

// TestKubeletBreakages: `upgrade node` checks the flags and the configuration of the kubelet's next start.
func TestKubeletBreakages(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Config.Upgrade.First = false
	equipped{s.FakeHost, "none", 50 << 30}.set()
	ask := func() []fault.Finding { return ownBreakages(t.Context(), s.Env) }
	phasetest.CheckFindings(t, ask(), phasetest.FoundAs{Name: "unchecked not-checked", Facts: []string{"no Node cp-1"}})
	s.HasKubelet(t, "v1.34.9")
	s.Put(t, "/sys/fs/cgroup/cgroup.controllers", "cpu\n")
	s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.10 --v=2"`)
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nfeatureGates: {SidecarContainers: true}\n") // the upgrade overwrites it
	phasetest.CheckFindings(t, ask())
	s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--boot-id-file=/x --feature-gates=SidecarContainers=true\n")
	phasetest.CheckFindings(t, ask(), phasetest.FoundAs{Name: "error flag-removed", Facts: []string{"kubelet on cp-1", "kubelet 1.37", "--boot-id-file"}},
		phasetest.FoundAs{Name: "error gate-removed", Facts: []string{"kubelet on cp-1", "kubelet 1.37", "SidecarContainers"}})
}

// TestOwnControlPlane: `upgrade node` checks the static Pods it will write, with the patches, which only this host has.
func TestOwnControlPlane(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Config.Upgrade.First = false
	equipped{s.FakeHost, "none", 50 << 30}.set()
	s.HasKubelet(t, "v1.37.2")
	s.EditPod(t, "kube-scheduler", "    - --leader-elect=true\n", "    - --leader-elect=true\n    - --feature-gates=SidecarContainers=true\n") // the upgrade drops it
	if got := phasetest.InWords(ownBreakages(t.Context(), s.Env)); len(got) > 0 {
		t.Errorf("without patches: %q", got)
	}
	for component, flag := range map[string]string{"kube-controller-manager": "--concurrent-service-syncs=2", "etcd": "--experimental-initial-corrupt-check=true"} {
		s.Put(t, "/patches/"+component+"0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: "+flag+"}\n")
	}
	s.Config.PatchesDir = "/patches"
	want := []phasetest.FoundAs{{Name: "error flag-removed", Facts: []string{"etcd on cp-1", "etcd 3.7", "--experimental-initial-corrupt-check"}},
		{Name: "error flag-removed", Facts: []string{"kube-controller-manager on cp-1", "kube-controller-manager 1.37", "--concurrent-service-syncs"}}}
	got := ownBreakages(t.Context(), s.Env)
	slices.SortFunc(got, func(a, b fault.Finding) int { return strings.Compare(a.Message, b.Message) })
	phasetest.CheckFindings(t, got, want...)
	s.Config.Upgrade.Etcd = false
	phasetest.CheckFindings(t, ownBreakages(t.Context(), s.Env), want[1:]...)
}

// TestNodeFindings: `upgrade node` examines its own host, which `upgrade apply` couldn't. Missing images are pulled next.
func TestNodeFindings(t *testing.T) {
	const stray = "/etc/kubernetes/manifests/kube-scheduler.yaml.bak"
	down := map[string]error{"cp-2": errors.New("no answer")}
	strays := phasetest.FoundAs{Name: "error StrayManifest", Facts: []string{stray}}
	for name, row := range map[string]struct {
		worker  bool
		down    map[string]error
		missing string
		kubelet string // an operator's addition to its configuration
		want    []phasetest.FoundAs
	}{
		"a stray manifest":       {false, nil, "none", "", []phasetest.FoundAs{strays}},
		"a missing image":        {false, nil, "coredns", "", []phasetest.FoundAs{strays}},
		"another member is down": {false, down, "none", "", []phasetest.FoundAs{strays, {Name: "warning EtcdHealth", Facts: []string{"member cp-2"}}}},
		"on a worker":            {true, down, "none", "", nil},
		"edits on a worker": {true, nil, "none", "maxPods: 200\nsystemReserved: {memory: 1Gi}\n",
			[]phasetest.FoundAs{{Name: "error KubeletConfigEdits", Facts: []string{"/var/lib/kubelet/config.yaml"}, List: "maxPods, systemReserved"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
			s.Config.Upgrade.First, s.Config.ControlPlane = false, !row.worker
			equipped{s.FakeHost, row.missing, 50 << 30}.set()
			s.Etcd = &phasetest.FakeMembers{Down: row.down, List: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}, {ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}}
			s.HasKubelet(t, "v1.37.2")
			s.Put(t, stray, s.Get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"))
			s.Put(t, "/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+row.kubelet)
			var found []fault.Finding
			for _, q := range upgradeBreakages(t.Context(), s.Env) {
				found = append(found, q.Run(t.Context(), s.Host)...)
			}
			phasetest.CheckFindings(t, found, row.want...)
		})
	}
}

// TestEtcdQuorum: `upgrade plan` and `upgrade apply` follow one rule, and only restarting etcd needs the other members.
func TestEtcdQuorum(t *testing.T) {
	refused := func(facts ...string) []phasetest.FoundAs {
		return []phasetest.FoundAs{{Name: "error EtcdQuorum", Facts: facts}}
	}
	for name, row := range map[string]struct {
		members, down int // beside this node's
		change        func(*phasetest.Stage)
		want          []phasetest.FoundAs
	}{
		"alone":                   {0, 0, nil, nil},
		"three, all work":         {2, 0, nil, nil},
		"three, one is down":      {2, 1, nil, refused("3 members", "2 besides")},
		"four, one is down":       {3, 1, nil, refused("4 members", "3 besides")},
		"five, one is down":       {4, 1, nil, nil},
		"without etcd":            {2, 1, func(s *phasetest.Stage) { s.Config.Upgrade.Etcd = false }, nil},
		"etcd is what it will be": {2, 1, func(s *phasetest.Stage) { s.Config.Cluster.Etcd.Local.ImageTag = "3.6.8-0" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.EditPod(t, "etcd", "etcd:3.7.0-0", "etcd:3.6.8-0")
			if row.change != nil {
				row.change(s)
			}
			s.FakeHost.Runs(time.Now().Add(time.Hour), "etcd")
			asked := &phasetest.FakeMembers{List: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}}, Down: map[string]error{}}
			for i := range row.members {
				m := etcd.Member{ID: uint64(2 + i), Name: fmt.Sprintf("cp-%d", 2+i), PeerURL: fmt.Sprintf("https://192.0.2.%d:2380", 12+i)}
				asked.List = append(asked.List, m)
				if i < row.down {
					asked.Down[m.Name] = errors.New("no answer")
				}
			}
			s.Etcd = asked
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			known, err := asked.Health(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			plan := etcdQuorum(s.Env, func(context.Context, *step.Env) error { return knownPeers(s.Env, known) })
			i := slices.IndexFunc(upgradeQuestions(s.Env), func(q preflight.Check) bool { return q.Name == fault.EtcdQuorum })
			apply := upgradeQuestions(s.Env)[i]
			for command, q := range map[string]preflight.Check{"plan": plan, "apply": apply} {
				found := q.Run(t.Context(), s.Host)
				for i := range found {
					found[i].Name = q.Name
				}
				t.Run(command, func(t *testing.T) { phasetest.CheckFindings(t, found, row.want...) })
			}
		})
	}
}
