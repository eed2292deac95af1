// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const fakeMember = "/var/fake/member"

// lastingEtcd has one other member, unless err is set.
type lastingEtcd struct {
	etcd.Etcd
	host host.Host
	err  error
}

func (e lastingEtcd) Members(context.Context) ([]etcd.Member, error) { return nil, e.err }

func (e lastingEtcd) Health(context.Context) ([]etcd.Health, error) { return nil, e.err }

func (e lastingEtcd) Leave(_ context.Context, peerURL string) (bool, error) {
	if e.err != nil || peerURL != "https://192.0.2.11:2380" {
		return false, errors.Join(e.err, errors.New(peerURL))
	}
	if _, err := e.host.Lstat(fakeMember); err != nil {
		return false, host.IgnoreMissing(err)
	}
	return true, e.host.Remove(fakeMember)
}

// lay writes files below root. A name ending in a slash is a directory.
func lay(root string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// usersOwn must survive reset, although it's next to files that reset removes.
var usersOwn = map[string]string{
	"/proc/self/mountinfo":                 "21 1 8:1 / / rw - ext4 /dev/sda rw\n",
	"/etc/cni/net.d/10-pods.conflist":      `{"name": "pods", "plugins": [{"type": "bridge", "bridge": "br-pods"}]}`,
	"/etc/cni/net.d/20-other.conf":         `{"name": "other", "type": "bridge", "bridge": "br-other"}`,
	"/etc/passwd":                          "root:x:0:0::/root:/bin/sh\n",
	"/etc/group":                           "root:x:0:\n",
	"/srv/tls/mail.key":                    "mine",
	"/usr/libexec/":                        "",
	"/srv/etcd/backup.db":                  "mine",
	"/var/lib/cni/networks/other/10.0.0.2": "",
	"/var/lib/cni/results/other-1-eth0":    "{}",
	"/var/lib/cni/results/pods-2-1-eth0":   "{}", "/var/lib/cni/results/cbr0-2-1-eth0": "{}", // networks pods-2 and cbr0-2
	phasetest.FakePods + "/": "", phasetest.FakeLeftovers + "/br-other/": "", phasetest.FakeLeftovers + "/cni-podman0/": "",
	"/etc/cni/net.d/87-podman.conflist":      `{"name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}]}`,
	"/var/lib/cni/networks/podman/10.88.0.2": "",
}

const etcdPod = `{"kind": "Pod", "spec": {"containers": [{"command": ["etcd", "--name=cp-1", "--data-dir=DIR",
"--initial-advertise-peer-urls=https://192.0.2.11:2380"]}], "volumes": [{"name": "etcd-data", "hostPath": {"path": "DIR"}}]}}`

// nodesOwn is left by init, the kubelet and the Pods.
var nodesOwn = map[string]string{
	"/etc/kubernetes/manifests/etcd.yaml":           strings.ReplaceAll(etcdPod, "DIR", "/var/lib/etcd"),
	"/etc/kubernetes/manifests/kube-apiserver.yaml": "kind: Pod\n",
	"/etc/kubernetes/pki/ca.key":                    "", "/etc/kubernetes/pki/etcd/ca.key": "", "/etc/kubernetes/pki/sa.pub": "",
	"/etc/kubernetes/admin.conf": "", "/etc/kubernetes/super-admin.conf": "", "/etc/kubernetes/kubelet.conf": "",
	"/etc/kubernetes/scheduler.conf":                       "",
	"/etc/kubernetes/.admin.conf.slipway-ABCDEFGH":         "",
	"/etc/kubernetes/pki/.ca.key.slipway-ABCDEFGH":         "",
	"/var/lib/etcd/member/wal/0.wal":                       "",
	"/var/lib/kubelet/config.yaml":                         "",
	"/var/lib/kubelet/pods/a/volumes/empty/data":           "",
	"/usr/libexec/kubernetes/kubelet-plugins/volume/exec/": "",
	phasetest.KubeletActive + "/":                          "", fakeMember + "/": "",
	phasetest.FakePods + "/etcd-cp-1/": "", phasetest.FakePods + "/coredns-1/": "",
}

// networkOwn is removed only by `reset --network`.
var networkOwn = map[string]string{
	phasetest.FakeLeftovers + "/br-pods/":    "",
	flannelSubnets:                           "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.0.1/24\nFLANNEL_IPV6_NETWORK=fd00:10:244::/56\nFLANNEL_MTU=1450\n",
	"/var/lib/cni/networks/pods/10.244.0.2":  "",
	"/var/lib/cni/results/pods-1-eth0":       "{}",
	"/var/lib/cni/results/cni-loopback-1-lo": "{}",
	"/var/lib/cni/cache/results/pods-1-eth0": "{}",
}

// flannelOwn is the same with flannel, as `--network flannel` installs it.
var flannelOwn = map[string]string{
	config.FlannelPluginsPath:                manifests.FlannelPlugins,
	phasetest.FakeLeftovers + "/cni0/":       "",
	flannelSubnets:                           networkOwn[flannelSubnets],
	"/var/lib/cni/flannel/1":                 "{}",
	"/var/lib/cni/networks/cbr0/10.244.0.2":  "",
	"/var/lib/cni/results/cbr0-1-eth0":       "{}",
	"/var/lib/cni/results/cni-loopback-1-lo": "{}",
	"/var/lib/cni/cache/results/cbr0-1-eth0": "{}",
}

// files lists everything below root, directories with a slash, but not the lock and the state of the test's systemd.
func files(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, root)
		if err != nil || strings.HasPrefix(rel, "/run") || strings.HasPrefix(rel, filepath.Dir(phasetest.KubeletActive)) {
			return err
		}
		if d.IsDir() {
			rel += "/"
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// resetScene is a node in a directory, and the directory's earlier content.
type resetScene struct {
	*step.Env
	host   *phasetest.LastingHost
	root   string
	before []string
	said   bytes.Buffer
	// late are Pods the runtime is still making when the kubelet ends; making is the error for Pods it never finishes.
	late    []string
	making  error
	settled []time.Time
	// busy is how often removing the Pods fails; removing is called before each try.
	busy     int
	removing func()
}

func newResetScene(t *testing.T, more ...map[string]string) *resetScene {
	t.Helper()
	s := &resetScene{root: t.TempDir()}
	if err := errors.Join(phasetest.Furnish(s.root), lay(s.root, usersOwn)); err != nil {
		t.Fatal(err)
	}
	s.before = files(t, s.root)
	for _, m := range append([]map[string]string{nodesOwn}, more...) {
		if err := lay(s.root, m); err != nil {
			t.Fatal(err)
		}
	}
	n, _, err := config.LoadReset(nil, config.ResetFlags{}, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	if err != nil {
		t.Fatal(err)
	}
	s.host = phasetest.NewLastingHost(s.root)
	s.host.On.AwaitSettled, s.host.Before = s.settles, s.removesPods
	s.Env = &step.Env{Config: n, Host: s.host, Etcd: lastingEtcd{host: s.host}, UI: ui.NewLines(&s.said, io.Discard)}
	return s
}

func (s *resetScene) settles(_ context.Context, _ string, since time.Time) error {
	s.settled = append(s.settled, since)
	for _, name := range s.late {
		if err := s.host.EnsureDir(filepath.Join(phasetest.FakePods, name), 0o755); err != nil {
			return err
		}
	}
	s.late = nil
	return s.making
}

func (s *resetScene) removesPods(_ context.Context, order string) error {
	if order != "remove Pods" {
		return nil
	}
	if s.removing != nil {
		s.removing()
	}
	if s.busy--; s.busy >= 0 {
		return errors.New("container is in starting state")
	}
	return nil
}

func (s *resetScene) reset(t *testing.T) string {
	t.Helper()
	s.said.Reset()
	if err := step.Run(t.Context(), s.Env, Node(), step.Options{}); err != nil {
		t.Fatalf("%v\n%s", err, s.said.String())
	}
	return s.said.String()
}

func (s *resetScene) isAsBefore(t *testing.T, but ...string) {
	t.Helper()
	want := slices.Sorted(slices.Values(append(slices.Clone(s.before), but...)))
	got := slices.Sorted(slices.Values(files(t, s.root)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestResetLeavesNothing(t *testing.T) {
	s := newResetScene(t, map[string]string{
		"/etc/kubernetes/tmp/slipway-address.yaml":  "to: 192.0.2.77\n",
		"/etc/kubernetes/tmp/slipway-rollback.yaml": "aside: /var/lib/etcd/member.before-rollback-2026-11-27-12-00-00\n",
	})
	said := s.reset(t)
	phasetest.Once(t, said, phasetest.Line{`Member "cp-1"`, "left etcd"}, phasetest.Line{"Stopping", "kubelet"}, phasetest.Line{"Removing 2 Pods"}, phasetest.Line{"been reset"})
	if strings.Contains(said, "WARNING") {
		t.Errorf("warned:\n%s", said)
	}
	s.isAsBefore(t)
	again := s.reset(t)
	phasetest.Once(t, again, phasetest.Line{"Nothing"})
	phasetest.Shows(t, "reset", said+"\nA second time:\n"+again)
}

// TestResetRemovesProfileFiles: files that are as a profile made them go. Edited ones stay, and so do audit logs.
func TestResetRemovesProfileFiles(t *testing.T) {
	asMade := map[string]string{}
	for _, f := range profile.Files() {
		asMade[f.Path] = string(f.Data)
	}
	for name, more := range map[string]map[string]string{
		"as made": nil,
		"edited":  {"/etc/kubernetes/hardening/admission.yaml": "mine", "/var/log/kubernetes/audit/audit.log": "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t, asMade, map[string]string{"/etc/kubernetes/audit/.audit.yaml.slipway-ABCDEFGH": ""}, more)
			said := s.reset(t)
			if len(more) == 0 {
				s.isAsBefore(t)
				return
			}
			phasetest.Once(t, said, phasetest.Line{"WARNING", "/etc/kubernetes/hardening/admission.yaml"}, phasetest.Line{"/var/log/kubernetes/audit"})
			s.isAsBefore(t, "/etc/kubernetes/", "/etc/kubernetes/hardening/", "/etc/kubernetes/hardening/admission.yaml",
				"/var/log/", "/var/log/kubernetes/", "/var/log/kubernetes/audit/", "/var/log/kubernetes/audit/audit.log")
		})
	}
}

// TestResetKeepsEncryptionKeys: snapshots of etcd may need them. A later join doesn't take them for its cluster's.
func TestResetKeepsEncryptionKeys(t *testing.T) {
	s := newResetScene(t, map[string]string{config.EncryptionFile: "keys", config.EncryptionKeyring: "sealed"})
	phasetest.Once(t, s.reset(t), phasetest.Line{config.EncryptionDir})
	kept := map[string]string{}
	entries, err := s.host.ReadDir(config.EncryptionDir)
	phasetest.Fatal(t, err)
	for _, e := range entries {
		data, err := s.host.ReadFile(config.EncryptionDir + "/" + e.Name())
		phasetest.Fatal(t, err)
		name, _, renamed := strings.Cut(e.Name(), ".before-reset-")
		if kept[name] = string(data); !renamed {
			t.Errorf("%s has its name still", e.Name())
		}
	}
	if kept["encryption.yaml"] != "keys" || kept["keyring"] != "sealed" {
		t.Errorf("it keeps %v", kept)
	}
	if said := s.reset(t); !strings.Contains(said, "Nothing") {
		t.Errorf("the second time, it says:\n%s", said)
	}
}

// TestResetTakesWhatOpensAnExternalEtcd: a join's files are removed, wherever they are. Files the user put there stay, and so do
// directories that existed before.
func TestResetTakesWhatOpensAnExternalEtcd(t *testing.T) {
	s := newResetScene(t, map[string]string{"/etc/kubernetes/manifests/kube-apiserver.yaml": `spec: {containers: [{command: [kube-apiserver,
--etcd-servers=https://192.0.2.5:2379, --etcd-cafile=/srv/tls/etcd.crt, --etcd-certfile=/etc/etcd/tls/client.crt, --etcd-keyfile=/etc/etcd/tls/client.key]}]}`,
		"/srv/tls/etcd.crt": "mine"})
	if err := s.host.EnsureDir("/etc/etcd/tls", 0o755); err != nil {
		t.Fatal(err)
	}
	if !s.host.CreatedBySlipway("/etc/etcd/tls") {
		t.Skip("no such attributes here")
	}
	for _, name := range []string{"client.crt", "client.key"} {
		if _, err := s.host.WriteSecret("/etc/etcd/tls/"+name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := lay(s.root, map[string]string{"/etc/etcd/tls/.client.key.slipway-ABCDEFGH": ""}); err != nil {
		t.Fatal(err)
	}
	s.reset(t)
	s.isAsBefore(t, "/srv/tls/etcd.crt")
}

func TestResetNetwork(t *testing.T) {
	s := newResetScene(t, networkOwn)
	s.reset(t)
	var kept []string
	for _, path := range files(t, s.root) {
		if !slices.Contains(s.before, path) {
			kept = append(kept, path)
		}
	}
	if len(kept) != 8 { // files and directories of the network
		t.Errorf("without --network, these network files are left: %v", kept)
	}
	s.Config.Reset.Network = true
	phasetest.Once(t, s.reset(t), phasetest.Line{"Removing", "interface br-pods"})
	s.isAsBefore(t)
}

// TestResetRemovesLatePods: when the kubelet ends, the runtime may still be making a Pod, or starting a container, which it can't
// remove before. A second reset has no kubelet to stop, so it waits for nothing without a sign.
func TestResetRemovesLatePods(t *testing.T) {
	for name, busy := range map[string]int{"at once": 0, "when it is no longer busy": 5} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t)
			s.late, s.busy = []string{"late"}, busy
			began := time.Now()
			said := s.reset(t)
			if strings.Count(said, "Removing 2 Pods") != 1 || strings.Count(said, "Removing 1 Pods") != 1 || strings.Contains(said, "WARNING") {
				t.Errorf("it says\n%s", said)
			}
			s.isAsBefore(t)
			s.reset(t)
			if at := s.settled; len(at) != 3 || at[0].Before(began) || at[1] != at[0] || !at[2].IsZero() {
				t.Errorf("waited for what was asked until %v", at)
			}
		})
	}
}

// TestResetSuspendsTheKubelet until the Pods are gone. Only then does it end, even if the run is interrupted.
func TestResetSuspendsTheKubelet(t *testing.T) {
	ended := []string{"suspend kubelet.service", "remove Pods", "kill kubelet.service", "stop kubelet.service"}
	for name, tt := range map[string]struct {
		spoil func(s *resetScene, interrupt func())
		want  []string
		err   error
	}{
		"well":           {func(*resetScene, func()) {}, ended, nil},
		"interrupted":    {func(s *resetScene, interrupt func()) { s.removing = interrupt }, ended, context.Canceled},
		"not suspended":  {func(s *resetScene, _ func()) { s.host.Fail["suspend kubelet.service"] = errors.New("no such method") }, []string{"suspend kubelet.service", "stop kubelet.service", "remove Pods"}, nil},
		"it runs not":    {func(s *resetScene, _ func()) { _ = os.Remove(s.root + phasetest.KubeletActive) }, []string{"remove Pods"}, nil},
		"Pods resist it": {func(s *resetScene, _ func()) { s.busy = 1 }, []string{"suspend kubelet.service", "remove Pods", "remove Pods", "kill kubelet.service", "stop kubelet.service"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.spoil(s, cancel)
			if err := step.Run(ctx, s.Env, Node(), step.Options{}); !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, s.host.Orders()); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResetIsPatientWithTheRuntime: only for a while, and not if a kubelet may make more Pods.
func TestResetIsPatientWithTheRuntime(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(s *resetScene)
		warns phasetest.Line
		takes time.Duration
	}{
		"Pods stay":           {func(s *resetScene) { s.busy = 1e9 }, phasetest.Line{"2 of 2 Pods", ": container is", "starting state"}, suspendedTimeout + podsTimeout},
		"Pods may appear":     {func(s *resetScene) { s.making = errors.New("still making [1]") }, phasetest.Line{"Pods", "unix:///run/x.sock: still making [1]"}, 0},
		"the kubelet remains": {func(s *resetScene) { s.busy, s.host.Fail["Unit"] = 1e9, host.ErrNoSystemd }, phasetest.Line{"2 of 2 Pods"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t)
			tt.spoil(s)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				phasetest.Once(t, s.reset(t), append(phasetest.Line{"[WARNING]"}, tt.warns...))
				if took := time.Since(began); took < tt.takes || took > tt.takes+time.Second {
					t.Errorf("it took %s, want %s", took, tt.takes)
				}
			})
		})
	}
}

// TestResetGoesOn past everything unreachable, and names it.
func TestResetGoesOn(t *testing.T) {
	dead := errors.New("connection refused")
	cases := map[string]struct {
		spoil  func(s *resetScene)
		warns  phasetest.Line
		remedy []string
		left   []string
	}{
		"etcd is dead": {
			spoil: func(s *resetScene) { s.Etcd = lastingEtcd{err: dead} },
			warns: phasetest.Line{`member "cp-1"`, "etcd: connection refused"},
			left:  []string{fakeMember + "/"},
		},
		"no runtime": {
			spoil:  func(s *resetScene) { s.host.Fail["Pods"] = dead },
			warns:  phasetest.Line{"Pods", ": connection refused\n", "container runtime"},
			remedy: []string{"[cleanup-node] [WARNING]", "--cri-socket=unix:///run/x.sock"},
			left:   []string{phasetest.FakePods + "/coredns-1/", phasetest.FakePods + "/etcd-cp-1/"},
		},
		"no systemd": {
			spoil: func(s *resetScene) { s.host.Fail["Unit"] = dead },
			warns: phasetest.Line{"kubelet", "still be", ": connection refused"},
		},
		"no init system": {
			spoil: func(s *resetScene) { s.host.Fail["Unit"] = host.ErrNoSystemd },
			warns: phasetest.Line{"/run/systemd/system", "kubelet", "still be"},
		},
		"a broken static Pod of etcd": {
			spoil: func(s *resetScene) {
				_ = os.WriteFile(s.root+"/etc/kubernetes/manifests/etcd.yaml", []byte("kind: Pod\nspec: {volumes: [{name: etcd-data, hostPath: {path: /var/lib/etcd}}]}\n"), 0o600)
			},
			warns: phasetest.Line{"static Pod", "etcd", "which member"},
			left:  []string{fakeMember + "/"},
		},
		"data of a member that nobody has taken out": {
			spoil: func(s *resetScene) { _ = os.Remove(s.root + "/etc/kubernetes/manifests/etcd.yaml") },
			warns: phasetest.Line{"/var/lib/etcd/member stays:", "etcd data"},
			left:  []string{fakeMember + "/", "/var/lib/etcd/", "/var/lib/etcd/member/", "/var/lib/etcd/member/wal/", "/var/lib/etcd/member/wal/0.wal"},
		},
		"an external etcd": {
			spoil: func(s *resetScene) {
				_ = os.Remove(s.root + "/etc/kubernetes/manifests/etcd.yaml")
				_ = os.RemoveAll(s.root + "/var/lib/etcd")
				_ = os.WriteFile(s.root+"/etc/kubernetes/manifests/kube-apiserver.yaml", []byte("spec: {containers: [{command: [kube-apiserver, '--etcd-servers=https://192.0.2.5:2379']}]}\n"), 0o600)
			},
			warns: phasetest.Line{"https://192.0.2.5:2379", "external"},
			left:  []string{fakeMember + "/"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t)
			c.spoil(s)
			said := s.reset(t)
			phasetest.Once(t, said, append(phasetest.Line{"[WARNING]"}, c.warns...))
			if c.remedy != nil {
				fact.In(t, phasetest.After(t, said, c.warns[len(c.warns)-1]), c.remedy...)
			}
			s.isAsBefore(t, c.left...)
		})
	}
}

// TestResetOfChosenDirectories: directories the user chose keep files that aren't a control plane's.
func TestResetOfChosenDirectories(t *testing.T) {
	s := newResetScene(t, map[string]string{
		"/etc/kubernetes/manifests/etcd.yaml": strings.ReplaceAll(etcdPod, "DIR", "/srv/etcd"),
		"/srv/etcd/member/snap/db":            "", "/srv/tls/ca.key": "", "/srv/tls/etcd/peer.crt": "", "/srv/tls/.sa.key.slipway-ABCDEFGH": "",
		"/etc/kubernetes/tmp/backup/etcd.yaml": "",
	})
	if err := os.RemoveAll(s.root + "/var/lib/etcd"); err != nil {
		t.Fatal(err)
	}
	s.Config.Paths.PKI, s.Config.Reset.CleanupTmpDir = "/srv/tls", true
	s.reset(t)
	left := []string{"/etc/kubernetes/"}
	for _, path := range []string{"pki/", "pki/.ca.key.slipway-ABCDEFGH", "pki/ca.key", "pki/etcd/", "pki/etcd/ca.key", "pki/sa.pub"} {
		left = append(left, "/etc/kubernetes/"+path)
	}
	s.isAsBefore(t, left...)
}

// TestResetLeavesOtherCertificates of an API server that has them elsewhere, and names them.
func TestResetLeavesOtherCertificates(t *testing.T) {
	s := newResetScene(t, map[string]string{
		"/etc/kubernetes/manifests/kube-apiserver.yaml": `{"kind": "Pod", "spec": {"containers": [{"command": ["kube-apiserver"]}],
"volumes": [{"name": "k8s-certs", "hostPath": {"path": "/srv/pki"}}]}}`,
		"/srv/pki/ca.key": "",
	})
	phasetest.Once(t, s.reset(t), phasetest.Line{"/srv/pki", "`slipway reset --cert-dir /srv/pki`"})
	s.isAsBefore(t, "/srv/pki/", "/srv/pki/ca.key")
}

// TestResetTakesALogApart: if a patch put etcd's log on another disk, it must go as well, or the next member would be refused.
func TestResetTakesALogApart(t *testing.T) {
	pod := strings.ReplaceAll(etcdPod, "DIR", "/var/lib/etcd")
	pod = strings.Replace(pod, `"--name=cp-1",`, `"--name=cp-1", "--wal-dir=/wal",`, 1)
	pod = strings.Replace(pod, `]}], "volumes": [`, `], "volumeMounts": [{"name": "wal", "mountPath": "/wal"}]}], "volumes": [{"name": "wal", "hostPath": {"path": "/srv/wal"}}, `, 1)
	s := newResetScene(t, map[string]string{
		"/etc/kubernetes/manifests/etcd.yaml": pod, "/srv/wal/0.wal": phasetest.LogOf(1, 7, true), "/srv/wal/0.tmp": "", "/srv/wal/mine": "",
	})
	s.reset(t)
	s.isAsBefore(t, "/srv/wal/", "/srv/wal/mine")
}

func TestResetRemovesAccounts(t *testing.T) {
	s := newResetScene(t)
	s.Config.Cluster.FeatureGates = map[string]bool{"RootlessControlPlane": true}
	if err := s.Accounts().Ensure(); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(s.root + "/etc/group"); !strings.Contains(string(data), "kubeadm-") {
		t.Fatalf("no accounts to remove:\n%s", data)
	}
	s.reset(t)
	for _, path := range []string{"/etc/passwd", "/etc/group"} {
		if data, err := os.ReadFile(s.root + path); err != nil || string(data) != usersOwn[path] {
			t.Errorf("%s (%v):\n%s", path, err, data)
		}
	}
}

// TestResetNamesMounts: a directory that somebody else mounted stays, and is named.
func TestResetNamesMounts(t *testing.T) {
	s := newResetScene(t)
	s.host.On.RemoveTree = func(path string) (host.Removal, error) {
		done, err := s.host.Real.RemoveTree(path)
		if path == "/var/lib/kubelet" {
			done.Kept = append(done.Kept, "/var/lib/kubelet/mine")
		}
		return done, err
	}
	phasetest.Once(t, s.reset(t), phasetest.Line{"[WARNING]", "/var/lib/kubelet/mine stays:", "mounted"})
}

// TestResetReportsFailures: if something can't be removed, the rest is, and the reset ends with an error that says so.
func TestResetReportsFailures(t *testing.T) {
	s := newResetScene(t)
	s.host.Before = func(_ context.Context, order string) error {
		if order == "remove /etc/kubernetes/admin.conf" {
			return errors.New("lsattr says why")
		}
		return nil
	}
	err := step.Run(t.Context(), s.Env, Node(), step.Options{})
	if !strings.HasPrefix(phasetest.Message(err), "phase cleanup-node: ") || !strings.HasSuffix(phasetest.Message(err), ": lsattr says why") {
		t.Errorf("error %v lacks the phase, or why", err)
	}
	s.isAsBefore(t, "/etc/kubernetes/", "/etc/kubernetes/admin.conf")
}

// TestResetInterrupted: a run interrupted while etcd hangs ends at once, and the next one tries again.
func TestResetInterrupted(t *testing.T) {
	s := newResetScene(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s.Etcd = hangingEtcd{asked: func() { cancel(errors.New("interrupted")) }}
	fact.Error(t, step.Run(ctx, s.Env, Node(), step.Options{}), "phase remove-etcd-member: interrupted")
	s.Etcd = lastingEtcd{host: s.host}
	phasetest.Once(t, s.reset(t), phasetest.Line{`Member "cp-1"`, "left etcd"})
	s.isAsBefore(t)
}

type hangingEtcd struct {
	etcd.Etcd
	asked func()
}

func (e hangingEtcd) Members(ctx context.Context) ([]etcd.Member, error) {
	e.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestKubeletSocket(t *testing.T) {
	const dir = "/var/lib/kubelet/"
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"no kubelet":      {},
		"the cluster's":   {map[string]string{dir + "config.yaml": "containerRuntimeEndpoint: unix:///c"}, "unix:///c"},
		"the instance's":  {map[string]string{dir + "config.yaml": "containerRuntimeEndpoint: unix:///c", dir + "instance-config.yaml": "containerRuntimeEndpoint: unix:///i"}, "unix:///i"},
		"of its flags":    {map[string]string{dir + "config.yaml": "containerRuntimeEndpoint: unix:///c", dir + "kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--v=2 --container-runtime-endpoint=unix:///f\"\n"}, "unix:///f"},
		"of other flags":  {map[string]string{dir + "config.yaml": "containerRuntimeEndpoint: \"\"", dir + "kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--v=2\"\n"}, ""},
		"a broken config": {map[string]string{dir + "config.yaml": "- a\n"}, ""},
	}
	for name, c := range cases {
		root := t.TempDir()
		if err := lay(root, c.files); err != nil {
			t.Fatal(err)
		}
		if got := thisnode.KubeletSocket(linux.NewAt(root)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestResetKeepsOldData: in etcd's own directory, only data set aside stays, and the next node may use the directory.
func TestResetKeepsOldData(t *testing.T) {
	const old = "/var/lib/etcd/member.before-recover-2026-02-03-04-05-06"
	s := newResetScene(t, map[string]string{
		old + "/snap/db":                      "every Secret",
		"/var/lib/etcd/member.new/snap/db":    "half",
		"/var/lib/etcd/member/wal/0.wal":      "",
		"/var/lib/etcd/notes":                 "mine",
		"/etc/kubernetes/manifests/etcd.yaml": strings.ReplaceAll(etcdPod, "DIR", "/var/lib/etcd"),
	})
	phasetest.Once(t, s.reset(t), phasetest.Line{"[WARNING]", "Secret", old})
	left, err := s.host.ReadDir("/var/lib/etcd")
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(old) {
		t.Errorf("left: %v; %v", left, err)
	}
}

// TestResetNamesBackups: reset names the copies of etcd's data left by upgrades and rollbacks; `down --host` removes them.
func TestResetNamesBackups(t *testing.T) {
	const stamp = "2026-02-03-04-05-06"
	backups := map[string]string{
		"/etc/kubernetes/tmp/kubeadm-backup-etcd-" + stamp + "/snapshot.db":              "every Secret",
		"/etc/kubernetes/tmp/kubeadm-backup-manifests-" + stamp + "/kube-apiserver.yaml": "kind: Pod\n",
		"/srv/etcd/member.before-rollback-" + stamp + "/snap/db":                         "every Secret",
		"/srv/etcd/member.new/snap/db":                                                   "every Secret",
		"/srv/etcd/.member.new.slipway-ABCDEFGH/snap/db":                                 "every Secret",
		"/srv/etcd/member.before-rollback-mine/notes":                                    "mine",
		"/etc/kubernetes/manifests/etcd.yaml":                                            strings.ReplaceAll(etcdPod, "DIR", "/srv/etcd"),
		"/srv/etcd/member/wal/0.wal":                                                     "",
	}
	left := []string{"/etc/kubernetes/tmp/kubeadm-backup-etcd-" + stamp, "/srv/etcd/.member.new.slipway-ABCDEFGH", "/srv/etcd/member.before-rollback-" + stamp, "/srv/etcd/member.new"}
	s := newResetScene(t, backups)
	said := s.reset(t)
	phasetest.Once(t, said, append(phasetest.Line{"[WARNING]", "Secret"}, left...))
	if strings.Contains(said, "rollback-mine") {
		t.Errorf("it names what is somebody else's:\n%s", said)
	}
	for _, path := range left {
		if _, err := s.host.Lstat(path); err != nil {
			t.Error(err)
		}
	}

	s = newResetScene(t, backups)
	n, _, err := config.LoadReset(nil, config.ResetFlags{Host: true}, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	phasetest.Fatal(t, err)
	s.Config = n
	if said := s.reset(t); strings.Contains(said, "Secret") {
		t.Errorf("it still names backups:\n%s", said)
	}
	s.isAsBefore(t, "/var/lib/etcd/", "/var/lib/etcd/member/", "/var/lib/etcd/member/wal/", "/var/lib/etcd/member/wal/0.wal",
		"/srv/etcd/member.before-rollback-mine/", "/srv/etcd/member.before-rollback-mine/notes")
}
