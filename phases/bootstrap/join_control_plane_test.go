// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// planeStage is a host that will become the second control plane, with the objects the first one left in the API.
type planeStage struct {
	*phasetest.JoinStage
	first  *phasetest.Stage
	shared map[string][]byte // the first one's files, unencrypted
	secret *corev1.Secret
	etcd   *phasetest.FakeMembers
}

func newPlaneStage(t *testing.T, stored string) *planeStage {
	t.Helper()
	s := &planeStage{JoinStage: phasetest.NewJoinStage(t), first: phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument), etcd: &phasetest.FakeMembers{}, shared: map[string][]byte{}}
	s.first.Play(t, certificates())
	for key, path := range manifests.SharedFiles(s.first.Config) {
		s.shared[key] = []byte(s.first.Get(t, path))
	}
	ca, err := certs.FirstCert(s.shared["ca.crt"])
	if err != nil {
		t.Fatal(err)
	}
	s.CA = fixture.Pair{Cert: ca}
	s.Put(t, "/discovery.conf", fixture.Kubeconfig(s.CA, ""))
	s.share(t, s.shared)
	s.store(t, fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", stored))
	s.etcd.List = []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"}}
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	return s
}

// preparedPlane has discovered its cluster, and has all the files it starts with.
func preparedPlane(t *testing.T) *planeStage {
	t.Helper()
	s := newPlaneStage(t, phasetest.StoredPlane)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, controlPlanePrepare())
	return s
}

func (s *planeStage) store(t *testing.T, obj cluster.Object) {
	t.Helper()
	if err := s.api().Ensure(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func (s *planeStage) api() *cluster.Plan { return s.API }

func (s *planeStage) share(t *testing.T, files map[string][]byte) {
	t.Helper()
	data, err := manifests.EncryptCerts(files, config.NewSecret(phasetest.SomeKey), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-certs", Namespace: "kube-system"}, Data: data}
	s.store(t, s.secret)
}

func (s *planeStage) discoverPlane(t *testing.T, key string) error {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: "cp-2"}}
	flags := config.JoinFlags{Given: []string{"control-plane", "discovery-file", "tls-bootstrap-token", "node-name", "cri-socket", "apiserver-advertise-address"},
		ControlPlane: true, DiscoveryFile: "/discovery.conf", TLSBootstrapToken: fixture.Token, NodeName: "cp-2",
		CRISocket: "unix:///run/containerd/containerd.sock", APIServerAdvertiseAddress: "192.0.2.12"}
	if key != "" {
		flags.Given, flags.CertificateKey = append(flags.Given, "certificate-key"), key
	}
	self, _, err := config.LoadJoin(nil, flags, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: s.FakeHost, UI: s.UI, Options: opts, Connect: func([]byte) cluster.Cluster { return s.api() }}
	n, _, err := d.Node(t.Context(), self)
	if err == nil {
		s.Config, s.Cluster, s.Etcd = n, s.api(), s.etcd
	}
	return err
}

// joinPlane returns the phases of join without preflight, which checks the real host, and without the waits for components a
// kubelet would start.
func joinPlane() []step.Phase {
	return slices.DeleteFunc(Join(), func(p step.Phase) bool {
		return slices.Contains([]string{"preflight", "kubelet-wait-bootstrap", "wait-control-plane"}, p.Name)
	})
}

func (s *planeStage) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(filepath.Join(s.Root, "/etc/kubernetes"), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			all[strings.TrimPrefix(path, s.Root)] = info.Mode().String() + " " + info.ModTime().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestJoinControlPlane: this node gets the shared files unchanged, its own certificates, and an etcd that joins the first one. A
// second join does nothing.
func TestJoinControlPlane(t *testing.T) {
	s := newPlaneStage(t, phasetest.StoredPlane)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, joinPlane()...)
	for key, path := range manifests.SharedFiles(s.Config) {
		info, err := os.Stat(filepath.Join(s.Root, path))
		if err != nil || s.Get(t, path) != string(s.shared[key]) || strings.HasSuffix(path, ".key") && info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	pod := s.Get(t, "/etc/kubernetes/manifests/etcd.yaml")
	for _, arg := range []string{"--initial-cluster=cp-1=https://192.0.2.11:2380,cp-2=https://192.0.2.12:2380", "--initial-cluster-state=existing"} {
		if !strings.Contains(pod, arg) {
			t.Errorf("etcd.yaml lacks %s", arg)
		}
	}
	if conf := s.Get(t, "/etc/kubernetes/bootstrap-kubelet.conf"); !strings.Contains(conf, "server: https://192.0.2.12:6443") {
		t.Errorf("the kubelet does not use the API server on its own host:\n%s", conf)
	}
	if want := []string{"join https://192.0.2.12:2380", "promote https://192.0.2.12:2380"}; !cmp.Equal(s.etcd.Did, want) {
		t.Errorf("etcd: %v", s.etcd.Did)
	}
	for _, absent := range []string{"super-admin.conf", "kubelet.conf"} {
		if _, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes", absent)); err == nil {
			t.Errorf("%s was written", absent)
		}
	}
	before := s.files(t)
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(9, 0, true))
	s.etcd.List = append(s.etcd.List, etcd.Member{ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"}) // joined since
	if err := s.discoverPlane(t, ""); err != nil {
		t.Fatal(err)
	}
	s.Play(t, joinPlane()...)
	if diff := cmp.Diff(before, s.files(t)); diff != "" {
		t.Errorf("the second join wrote (-before +after):\n%s", diff)
	}
}

const (
	externalEtcdDir = "/etc/external-etcd"
	storedExternal  = phasetest.StoredPlane + `etcd:
  external:
    endpoints: ["https://192.0.2.50:2379"]
    caFile: ` + externalEtcdDir + `/ca.crt
    certFile: ` + externalEtcdDir + `/client.crt
    keyFile: ` + externalEtcdDir + "/client.key\n"
)

// sharedExternal returns the files the first control plane shares when etcd is external.
func (s *planeStage) sharedExternal(t *testing.T) map[string][]byte {
	t.Helper()
	files := maps.Clone(s.shared)
	files["external-etcd-ca.crt"] = files["etcd-ca.crt"]
	for _, ext := range []string{"crt", "key"} {
		files["external-etcd."+ext] = []byte(s.first.Get(t, "/etc/kubernetes/pki/apiserver-etcd-client."+ext))
		delete(files, "etcd-ca."+ext)
	}
	return files
}

// TestJoinExternalEtcd: the client certificate for an external etcd comes with the other shared files, and goes where the
// cluster's configuration expects it. There's no etcd to join.
func TestJoinExternalEtcd(t *testing.T) {
	s := newPlaneStage(t, storedExternal)
	files := s.sharedExternal(t)
	s.share(t, files)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, joinPlane()...)
	for path, want := range map[string]struct {
		key  string
		mode os.FileMode
	}{
		"/ca.crt": {"external-etcd-ca.crt", 0o644}, "/client.crt": {"external-etcd.crt", 0o644}, "/client.key": {"external-etcd.key", 0o600},
	} {
		info, err := os.Stat(filepath.Join(s.Root, externalEtcdDir, path))
		if err != nil || info.Mode() != want.mode || s.Get(t, externalEtcdDir+path) != string(files[want.key]) {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if len(s.etcd.Did) > 0 {
		t.Errorf("etcd was asked to %v", s.etcd.Did)
	}
	for _, absent := range []string{"manifests/etcd.yaml", "pki/etcd", "pki/apiserver-etcd-client.crt"} {
		if _, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes", absent)); err == nil {
			t.Errorf("%s exists", absent)
		}
	}
}

// TestDownloadRefusesForExternalEtcd: a shared file must match its name in kind.
func TestDownloadRefusesForExternalEtcd(t *testing.T) {
	for _, tt := range []struct {
		name, from string
		want       []string
	}{
		{"external-etcd-ca.crt", "ca.key", []string{"external-etcd-ca.crt:", "private key"}},
		{"external-etcd.crt", "sa.key", []string{"external-etcd.crt:", "private key"}},
		{"external-etcd.crt", "ca.crt", []string{"external-etcd.crt and external-etcd.key:"}},
		{"external-etcd.key", "ca.key", []string{"external-etcd.crt and external-etcd.key:"}},
	} {
		t.Run(tt.from+" as "+tt.name, func(t *testing.T) {
			s := newPlaneStage(t, storedExternal)
			files := s.sharedExternal(t)
			files[tt.name] = files[tt.from]
			s.share(t, files)
			if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
				t.Fatal(err)
			}
			fact.Error(t, runDownloadCerts(t.Context(), s.Env), tt.want...)
			for _, dir := range []string{"/etc/kubernetes/pki", externalEtcdDir} {
				if _, err := os.Stat(filepath.Join(s.Root, dir)); err == nil {
					t.Errorf("something was written to %s", dir)
				}
			}
		})
	}
}

// TestDownloadRefuses: nothing is written unless everything is right.
func TestDownloadRefuses(t *testing.T) {
	other := func(t *testing.T, change func(files map[string][]byte)) func(*planeStage) {
		return func(s *planeStage) {
			files := map[string][]byte{}
			for key, data := range s.shared {
				files[key] = data
			}
			change(files)
			s.share(t, files)
		}
	}
	tests := []struct {
		name, key string
		before    func(s *planeStage)
		want      []string
	}{
		{"no key and no files", "", func(*planeStage) {}, []string{": /etc/kubernetes/pki/ca.crt, "}},
		{"another key", strings.Repeat("ef", 32), func(*planeStage) {}, []string{"not encrypted", "certificate key"}},
		{"no Secret", phasetest.SomeKey, func(s *planeStage) {
			_ = s.api().EnsureAbsent(t.Context(), &corev1.Secret{ObjectMeta: s.secret.ObjectMeta})
		}, []string{"Secret kube-system/kubeadm-certs", "not exist", "two hours"}},
		{"another cluster's CA", phasetest.SomeKey, other(t, func(f map[string][]byte) {
			f["ca.crt"], f["ca.key"] = f["etcd-ca.crt"], f["etcd-ca.key"]
		}), []string{"not the CA", "verified"}},
		{"a CA that is garbage", phasetest.SomeKey, other(t, func(f map[string][]byte) { f["ca.crt"] = []byte("x") }), []string{"ca.crt and ca.key in Secret kube-system/kubeadm-certs", "wrong"}},
		{"a file is missing", phasetest.SomeKey, other(t, func(f map[string][]byte) { delete(f, "sa.key") }), []string{"Secret kube-system/kubeadm-certs", "has sa.key"}},
		{"an empty file", phasetest.SomeKey, other(t, func(f map[string][]byte) { f["etcd-ca.key"] = nil }), []string{"Secret kube-system/kubeadm-certs", "has etcd-ca.key"}},
		{"a key of another CA", phasetest.SomeKey, other(t, func(f map[string][]byte) { f["ca.key"] = f["etcd-ca.key"] }), []string{"ca.crt and ca.key in Secret kube-system/kubeadm-certs"}},
		{"another service account key", phasetest.SomeKey, other(t, func(f map[string][]byte) { f["sa.pub"] = []byte("x") }), []string{"sa.pub in Secret kube-system/kubeadm-certs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newPlaneStage(t, phasetest.StoredPlane)
			tt.before(s)
			if err := s.discoverPlane(t, tt.key); err != nil {
				t.Fatal(err)
			}
			err := runDownloadCerts(t.Context(), s.Env)
			fact.Error(t, err, tt.want...)
			fact.NotIn(t, phasetest.Message(err), tt.key)
			if _, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes/pki")); err == nil {
				t.Error("something was written")
			}
		})
	}
}

// TestDownloadFromAnOddSecret: only the parts of the Secret that this host lacks matter.
func TestDownloadFromAnOddSecret(t *testing.T) {
	const pki = "/etc/kubernetes/pki/"
	tests := []struct {
		name   string
		absent []string // from the Secret
		extra  map[string][]byte
		here   []string // copied to this host before
		spoil  func(s *planeStage, t *testing.T)
		err    []string
	}{
		{name: "entries of an earlier layout", extra: map[string][]byte{"apiserver.key": []byte("not encrypted with this key, and long enough"), "old": []byte("x"), "empty": nil}},
		{name: "pairs that were brought here", absent: []string{"front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"},
			here: []string{"front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"}},
		{name: "half of a pair was brought here", absent: []string{"etcd-ca.crt"}, here: []string{"etcd-ca.crt"}},
		{name: "half of another pair was brought here", absent: []string{"etcd-ca.crt"}, err: []string{"etcd-ca.key in Secret kube-system/kubeadm-certs", "not fit etcd-ca.crt"},
			spoil: func(s *planeStage, t *testing.T) { s.Put(t, pki+"etcd/ca.crt", string(s.shared["ca.crt"])) }},
		{name: "much is missing", absent: []string{"sa.pub", "ca.key", "etcd-ca.crt"},
			err: []string{"Secret kube-system/kubeadm-certs", "has ca.key, etcd-ca.crt, sa.pub"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newPlaneStage(t, phasetest.StoredPlane)
			for _, key := range tt.absent {
				delete(s.secret.Data, key)
			}
			maps.Copy(s.secret.Data, tt.extra)
			s.store(t, s.secret)
			paths := manifests.SharedFiles(s.first.Config)
			for _, key := range tt.here {
				s.Put(t, paths[key], string(s.shared[key]))
			}
			if tt.spoil != nil {
				tt.spoil(s, t)
			}
			if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
				t.Fatal(err)
			}
			before := s.files(t)
			fact.Error(t, runDownloadCerts(t.Context(), s.Env), tt.err...)
			if tt.err != nil {
				if diff := cmp.Diff(before, s.files(t)); diff != "" {
					t.Errorf("something was written (-before +after):\n%s", diff)
				}
				return
			}
			for key, path := range paths {
				if s.Get(t, path) != string(s.shared[key]) {
					t.Errorf("%s is not the shared file", path)
				}
			}
		})
	}
}

func TestControlPlaneNeedsEndpoint(t *testing.T) {
	s := newPlaneStage(t, fixture.ClusterConfiguration)
	fact.Error(t, s.discoverPlane(t, phasetest.SomeKey), "no controlPlaneEndpoint")
}

// etcdEnds gives this node an etcd container that ends after a few sightings. It returns how many are left.
func (s *planeStage) etcdEnds(after int) (left *int) {
	s.FakeHost.On.Containers = func(context.Context, string, string, string) ([]host.Container, error) {
		if after == 0 {
			return nil, nil
		}
		after--
		return []host.Container{{ID: "etcd"}}, nil
	}
	return &after
}

// TestEtcdJoinUndoes: a run that can't finish removes the member it added. An earlier run's member stays.
func TestEtcdJoinUndoes(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	late := errors.New("it has not caught up")
	const removed = "was removed"
	tests := []struct {
		name   string
		before func(t *testing.T, s *planeStage)
		want   []string // of the error
		left   int      // members afterwards
		pod    bool     // is still there
	}{
		{"promotion fails", func(_ *testing.T, s *planeStage) { s.etcd.Fail = map[string]error{"promote": late} },
			[]string{removed}, 1, false},
		{"and undoing fails, too", func(_ *testing.T, s *planeStage) {
			s.etcd.Fail = map[string]error{"promote": late, "leave": errors.New("no leader")}
		}, []string{"undone: no leader"}, 2, true},
		{"promotion of an earlier run's member fails", func(_ *testing.T, s *planeStage) {
			s.etcd.Fail = map[string]error{"promote": late}
			s.etcd.List = append(s.etcd.List, etcd.Member{ID: 9, PeerURL: peer, Learner: true})
		}, []string{"caught up"}, 2, true},
		{"it cannot be added", func(_ *testing.T, s *planeStage) { s.etcd.Fail = map[string]error{"join": errors.New("no leader")} },
			[]string{"no leader"}, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := preparedPlane(t)
			tt.before(t, s)
			left := s.etcdEnds(2)
			failed := runEtcdJoin(t.Context(), s.Env)
			fact.Error(t, failed, tt.want...)
			if s.etcd.Fail["promote"] != nil && !errors.Is(failed, late) {
				t.Errorf("%v does not say why", failed)
			}
			if got := phasetest.Message(failed); strings.Contains(got, "undone") && strings.Contains(got, removed) {
				t.Errorf("%q gives both reasons", got)
			}
			_, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes/manifests/etcd.yaml"))
			if strings.Contains(phasetest.Message(failed), removed) && *left != 0 {
				t.Error("etcd's data was removed while it ran")
			}
			if len(s.etcd.List) != tt.left || (err == nil) != tt.pod {
				t.Errorf("%d members, etcd.yaml: %v", len(s.etcd.List), err)
			}
		})
	}
}

// TestEtcdJoinLeavesData: the same command doesn't continue with the data of a member that has left.
func TestEtcdJoinLeavesData(t *testing.T) {
	s := preparedPlane(t)
	s.etcd.Fail = map[string]error{"promote": errors.New("it has not caught up")}
	s.etcdEnds(0)
	s.FakeHost.On.RemoveTree = func(string) (host.Removal, error) {
		return host.Removal{}, errors.New("device or resource busy")
	}
	fact.Error(t, runEtcdJoin(t.Context(), s.Env), "caught up;", "was removed", "resource busy; reset")
	if len(s.etcd.List) != 1 {
		t.Errorf("%d members", len(s.etcd.List))
	}
}

// TestEtcdJoinIsCutOff leaves a member that was added but not started, as a power failure does. The same command starts it.
func TestEtcdJoinIsCutOff(t *testing.T) {
	s := newPlaneStage(t, phasetest.StoredPlane)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, controlPlanePrepare())
	s.etcd.List = append(s.etcd.List, etcd.Member{ID: 9, PeerURL: "https://192.0.2.12:2380", Learner: true})
	s.Play(t, etcdJoin())
	if m := s.etcd.List[1]; m.Learner {
		t.Error("the learner has no vote yet")
	}
	if pod := s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"); !strings.Contains(pod, "--initial-cluster-state=existing") {
		t.Error("etcd would start a cluster of its own")
	}
}

// TestJoinControlPlaneKeepsCAs: ca.crt stays as all control planes share it, even if discovery verified another part of it.
func TestJoinControlPlaneKeepsCAs(t *testing.T) {
	later := time.Now().Add(time.Hour)
	next, gone := fixture.Signed(t, fixture.Pair{}, "kubernetes", later), fixture.Signed(t, fixture.Pair{}, "kubernetes", later)
	for name, found := range map[string][]fixture.Pair{"less": nil, "one that is shared no more": {gone}} {
		t.Run(name, func(t *testing.T) {
			s := newPlaneStage(t, phasetest.StoredPlane)
			files := maps.Clone(s.shared)
			files["ca.crt"] = slices.Concat(s.shared["ca.crt"], certs.EncodeCerts(next.Cert))
			s.share(t, files)
			if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
				t.Fatal(err)
			}
			for _, p := range found {
				s.Config.Join.CA = append(s.Config.Join.CA, certs.EncodeCerts(p.Cert)...)
			}
			s.Play(t, joinPlane()...)
			if got := s.Get(t, "/etc/kubernetes/pki/ca.crt"); got != string(files["ca.crt"]) {
				t.Errorf("ca.crt is\n%s\nwant\n%s", got, files["ca.crt"])
			}
		})
	}
}
