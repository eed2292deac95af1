// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// askedEtcd has keys, or does not answer.
type askedEtcd struct {
	etcd.Etcd
	keys []string
	err  error
}

func (e askedEtcd) Has(_ context.Context, key string) (bool, error) {
	return slices.Contains(e.keys, key), e.err
}

func (e askedEtcd) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{{Member: etcd.Member{Name: "cp-1", PeerURL: ownPeer}, Answers: true}}, e.err
}

// readable is a cluster that answers.
type readable struct{ cluster.Cluster }

func (readable) Read(context.Context, cluster.Query, func(io.Reader) error) error { return nil }

const (
	configKey  = "/registry/configmaps/kube-system/kubeadm-config"
	serviceKey = "/registry/services/specs/default/kubernetes"
)

// failedInit is a host on which an init with a typo has come to no end: etcd has data, and no API server answers.
func failedInit(t *testing.T, typo string) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument+typo)
	s.play(t, filePhases()...)
	s.needsNotes(t)
	s.put(t, "/var/lib/etcd/member/wal/0.wal", "")
	s.host.On.Probe = noAPIServer
	s.Etcd = askedEtcd{}
	return s
}

// noAPIServer answers for everything but an API server.
func noAPIServer(_ context.Context, p host.Probe) error {
	if strings.HasSuffix(p.URL, ":6443/readyz") {
		return &host.ProbeError{Status: 500}
	}
	return nil
}

func (s *stage) needsNotes(t *testing.T) {
	t.Helper()
	if !s.host.Made("/var/lib/kubelet/config.yaml") {
		t.Skip("this file system, or this user, keeps no notes of what was made")
	}
}

// again is the same host for another run, with another configuration.
func (s *stage) again(t *testing.T, documents string) {
	t.Helper()
	s.Config = fixture.Node(t, documents)
	s.Earlier = LookBack(t.Context(), s.Env)
	s.said.Reset()
	s.host.Jobs = nil
}

// refused are the checks that keep init from changing what is there, with what they say.
func (s *stage) refused(t *testing.T) map[string]string {
	t.Helper()
	checks, err := initChecks(t.Context(), s.Env)
	if err != nil {
		t.Fatal(err)
	}
	checks = slices.DeleteFunc(checks, func(c preflight.Check) bool {
		return c.Name != "Configuration" && !strings.HasPrefix(c.Name, "FileAvailable-")
	})
	found := map[string]string{}
	for _, f := range preflight.Run(t.Context(), checks, s.host, nil).Errors {
		found[f.Check] += f.Message + "\n"
	}
	return found
}

const typo = "apiServer: {extraArgs: [{name: no-such-flag, value: '1'}]}\n"

// TestCorrectedInit: a configuration that was corrected after a failed init replaces what the failed one has made: static Pods,
// the kubelet's files, certificates and kubeconfig files. What somebody has edited stays, and is refused.
func TestCorrectedInit(t *testing.T) {
	s := failedInit(t, typo)
	key := s.get(t, "/etc/kubernetes/pki/apiserver.key")
	s.again(t, strings.Replace(fixture.InitDocument, "name: cp-1", "name: n1", 1)+"timeouts: {controlPlaneComponentHealthCheck: 10m}\n"+
		fixture.ClusterDocument+"apiServer: {certSANs: [api.example.org]}\ncontrolPlaneEndpoint: api.example.org:6443\nnetworking: {dnsDomain: example.org}\n")
	if !s.Again {
		t.Fatal("the host is not recognized")
	}
	if found := s.refused(t); len(found) > 0 {
		t.Fatalf("refused: %q", found)
	}
	s.play(t, filePhases()...)

	said := s.said.String()
	fact.In(t, said, "Writing "+apiServerManifest, "--no-such-flag=1", "apiserver.crt", "api.example.org", "kubelet.conf", "system:node:n1")
	fact.NotIn(t, said, "[WARNING] keeping")
	fact.NotIn(t, s.get(t, apiServerManifest), "no-such-flag")
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		fact.In(t, s.get(t, "/etc/kubernetes/manifests/"+component+".yaml"), "failureThreshold: 60")
	}
	fact.In(t, s.get(t, "/etc/kubernetes/admin.conf"), "https://api.example.org:6443")
	fact.In(t, s.get(t, kubeletSettingsIn), "clusterDomain: example.org")
	fact.In(t, s.get(t, kubeletFlagsIn), "--hostname-override=n1")
	leaf, err := certs.FirstCert([]byte(s.get(t, "/etc/kubernetes/pki/apiserver.crt")))
	if err != nil || leaf.VerifyHostname("api.example.org") != nil {
		t.Errorf("the certificate has %q, %v", leaf.DNSNames, err)
	}
	if s.get(t, "/etc/kubernetes/pki/apiserver.key") != key {
		t.Error("the key was replaced")
	}
	s.Unfinished = false
	if faults := s.pki().Faults(); len(faults) > 0 {
		t.Errorf("it left %q", faults)
	}
	if orders := s.host.Orders(); !slices.Contains(orders, "restart kubelet.service") {
		t.Errorf("the kubelet would take half a minute for the new static Pods: %q", orders)
	}
	s.again(t, fixture.InitDocument+fixture.ClusterDocument)
	if !s.Unfinished {
		t.Error("a third configuration would be refused")
	}
}

// TestCorrectedInitStops what runs with the old static Pods: the API server before etcd, since each waits for the other.
func TestCorrectedInitStops(t *testing.T) {
	s := failedInit(t, "etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: snapshot-count, value: '5'}]}}\n")
	for _, component := range []string{"etcd", "kube-apiserver"} {
		s.host.Has.Running[component] = []host.Container{{ID: component, Created: time.Now().Add(time.Hour)}}
	}
	s.again(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, localEtcd())
	orders := s.host.Orders()
	api, member := slices.IndexFunc(orders, contains("kube-apiserver")), slices.IndexFunc(orders, contains("etcd"))
	if api < 0 || member < api || !slices.Contains(orders[member:], "restart kubelet.service") {
		t.Errorf("orders %q", orders)
	}
	s.host.Jobs = nil
	s.play(t, localEtcd())
	if orders := s.host.Orders(); len(orders) > 0 {
		t.Errorf("a third run did %q", orders)
	}
}

// TestCorrectedInitSparesEtcd: an init that looks unfinished may have been that of a cluster with several members. One whose etcd
// has never come up is corrected.
func TestCorrectedInitSparesEtcd(t *testing.T) {
	down := errors.New("connection refused")
	both := []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}
	for name, tt := range map[string]struct {
		etcd  *members
		needs bool
	}{
		"it is alone":         {&members{list: both[:1]}, false},
		"it is alone, broken": {&members{list: both[:1], down: map[string]error{"cp-1": down}}, false},
		"it never came up":    {&members{fail: map[string]error{"health": down}}, false},
		"another needs it":    {&members{list: both, down: map[string]error{"cp-2": down}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := failedInit(t, "etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: snapshot-count, value: '5'}]}}\n")
			s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.again(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			s.Etcd = tt.etcd
			err := Run(t.Context(), s.Env, []Phase{localEtcd()}, Options{})
			if kept := (*quorumError)(nil); errors.As(err, &kept) != tt.needs || !tt.needs && err != nil {
				t.Errorf("error %v", err)
			}
			if stopped := s.host.Did("stop container"); (len(stopped) == 0) != tt.needs {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}

// remove deletes what the host has at a path.
func (s *stage) remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.root, path)); err != nil {
		t.Fatal(err)
	}
}

func contains(text string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, text) }
}

// TestCorrectedInitKeepsEdits: an edited file is refused while nobody can say whose it is, and is not written.
func TestCorrectedInitKeepsEdits(t *testing.T) {
	s := failedInit(t, typo)
	s.append(t, "/etc/kubernetes/manifests/kube-scheduler.yaml", "# mine\n")
	s.append(t, kubeletSettingsIn, "maxPods: 17\n")
	s.again(t, fixture.InitDocument+"timeouts: {controlPlaneComponentHealthCheck: 10m}\n"+fixture.ClusterDocument)
	found := s.refused(t)
	if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, []string{"Configuration", "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml"}) {
		t.Errorf("refused %q", found)
	}
	fact.In(t, found["Configuration"], kubeletSettingsIn, "maxPods: 17")
	s.play(t, filePhases()...)
	fact.In(t, s.get(t, kubeletSettingsIn), "maxPods: 17")
	fact.In(t, s.get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"), "# mine")
	fact.NotIn(t, s.get(t, apiServerManifest), "no-such-flag")
}

// TestUnfinishedInit: whether an init came to an end is told by the cluster, and where it cannot be asked, by its etcd and by
// kubelet.conf. As long as that is not known, another configuration is refused.
func TestUnfinishedInit(t *testing.T) {
	answers := func(s *stage) { s.host.On.Probe = func(context.Context, host.Probe) error { return nil } }
	finished := func(t *testing.T, s *stage) {
		t.Helper()
		s.rotated(t, kubeletPEM, "cp-1", time.Now().Add(time.Hour))
		s.play(t, kubeletFinalize())
	}
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, s *stage)
		refused bool
	}{
		{"no API server, and an etcd without the configuration", func(*testing.T, *stage) {}, false},
		{"no API server, and an etcd with the configuration", func(_ *testing.T, s *stage) { s.Etcd = askedEtcd{keys: []string{configKey}} }, true},
		{"no etcd that answers", func(_ *testing.T, s *stage) { s.Etcd = askedEtcd{err: errors.New("down")} }, true},
		{"no etcd yet", func(t *testing.T, s *stage) {
			s.Etcd = askedEtcd{err: errors.New("down")}
			s.remove(t, "/var/lib/etcd/member")
		}, false},
		{"a cluster without the configuration", func(_ *testing.T, s *stage) {
			answers(s)
			s.Etcd, s.Cluster = nil, readable{s.api}
		}, false},
		{"a cluster with another configuration", func(t *testing.T, s *stage) { answers(s); s.play(t, uploadConfig()) }, true},
		{"a kubelet that rotates its certificate", func(t *testing.T, s *stage) { finished(t, s) }, true},
		{"an edited kubelet.conf", func(t *testing.T, s *stage) { s.append(t, "/etc/kubernetes/kubelet.conf", "# mine\n") }, true},
		{"a node that has joined", func(t *testing.T, s *stage) {
			s.remove(t, "/etc/kubernetes/kubelet.conf")
			fixture.BootstrapKubelet(t, s.root, fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour)), "cp-1", time.Now().Add(time.Hour))
		}, true},
		{"another address of etcd's member", func(t *testing.T, s *stage) {
			s.again(t, strings.Replace(fixture.InitDocument, "192.0.2.11", "192.0.2.12", 1)+fixture.ClusterDocument)
		}, true},
		{"another address of etcd's member, which there is not yet", func(t *testing.T, s *stage) {
			s.remove(t, "/var/lib/etcd/member")
			s.again(t, strings.Replace(fixture.InitDocument, "192.0.2.11", "192.0.2.12", 1)+fixture.ClusterDocument)
		}, false},
		{"another network of Services", func(t *testing.T, s *stage) {
			s.Etcd = askedEtcd{keys: []string{serviceKey}}
			s.again(t, fixture.InitDocument+fixture.ClusterDocument+"networking: {serviceSubnet: 10.97.0.0/16}\n")
		}, true},
		{"another network of Services, as there is none yet", func(t *testing.T, s *stage) {
			s.again(t, fixture.InitDocument+fixture.ClusterDocument+"networking: {serviceSubnet: 10.97.0.0/16}\n")
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := failedInit(t, typo)
			first := s.Config
			s.again(t, fixture.InitDocument+fixture.ClusterDocument)
			second := s.Config
			s.Config = first // the change happens before the second run
			s.Earlier = Earlier{}
			tt.change(t, s)
			if s.Config == first {
				s.Config = second
			}
			s.Earlier = LookBack(t.Context(), s.Env)
			if found := s.refused(t); (len(found) > 0) != tt.refused {
				t.Errorf("refused: %q", found)
			}
		})
	}
}

// TestCorrectedName: a kubelet prefers the certificate that it has got to that in kubelet.conf.
func TestCorrectedName(t *testing.T) {
	for name, kept := range map[string]bool{"cp-1": true, "other": false} {
		s := failedInit(t, typo)
		s.rotated(t, kubeletPEM, name, time.Now().Add(time.Hour))
		s.again(t, fixture.InitDocument+fixture.ClusterDocument)
		s.play(t, kubeletStart())
		if _, err := s.host.Lstat(kubeletPEM); (err == nil) != kept {
			t.Errorf("certificate of %s: %v", name, err)
		}
	}
}

// TestCorrectedJoin: until the cluster has a control plane's kubelet, its join came to no end, and another patch or address
// replaces what an earlier one has made. Whether its Node is marked says nothing.
func TestCorrectedJoin(t *testing.T) {
	const bootstrap = "/etc/kubernetes/bootstrap-kubelet.conf"
	for name, tt := range map[string]struct {
		end      func(t *testing.T, s *planeStage) // what the earlier join came to
		replaces []string
	}{
		"no certificate yet": {func(t *testing.T, s *planeStage) {
			s.remove(t, "/etc/kubernetes/kubelet.conf")
		}, []string{"etcd", "kube-apiserver"}},
		"not registered yet":  {func(_ *testing.T, s *planeStage) { s.Config.Join.NodeGone = true }, []string{"kube-apiserver"}},
		"registered":          {func(*testing.T, *planeStage) {}, nil},
		"registered long ago": {func(t *testing.T, s *planeStage) { s.remove(t, bootstrap); s.Config.Join.NodeGone = true }, nil},
		"its certificate is lost": {func(t *testing.T, s *planeStage) {
			s.remove(t, "/etc/kubernetes/kubelet.conf")
			s.remove(t, bootstrap)
			s.Config.Join.Marked = true
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := joinedPlane(t)
			s.needsNotes(t)
			tt.end(t, s)
			s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			s.Earlier = LookBack(t.Context(), s.Env)
			before := map[string]string{}
			for _, c := range []string{"etcd", "kube-apiserver"} {
				before[c] = s.get(t, thisnode.StaticPodPath(s.Config, c))
			}
			s.play(t, joinStaticPods())
			fatal(t, writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil))
			for c, text := range before {
				if changed := s.get(t, thisnode.StaticPodPath(s.Config, c)) != text; changed != slices.Contains(tt.replaces, c) {
					t.Errorf("%s written: %t", c, changed)
				}
			}
		})
	}
}

// TestCorrectedJoinOfBrokenComponent: a join whose scheduler never became healthy takes a corrected patch, although the kubelet has
// registered its Node. Once the components have been healthy, the join is complete, and another patch replaces nothing, even if
// an administrator has removed the Node's marks.
func TestCorrectedJoinOfBrokenComponent(t *testing.T) {
	const scheduler, patch = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/patches/kube-scheduler+json.json"
	adding := func(flag string) string {
		return `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "` + flag + `"}]`
	}
	for name, marked := range map[string]bool{"unmarked": false, "a Node of the same name was marked": true} {
		t.Run(name, func(t *testing.T) {
			s := newPlaneStage(t, storedPlane)
			fatal(t, s.discoverPlane(t, someKey))
			s.Config.Timeouts.ControlPlaneComponentHealthCheck = 150 * time.Millisecond
			s.Config.PatchesDir, s.Config.Join.Marked = "/patches", marked
			s.put(t, patch, adding("--no-such-flag=1"))
			s.Earlier = LookBack(t.Context(), s.Env)
			s.play(t, controlPlanePrepare())
			s.joins(t)
			s.needsNotes(t)
			s.host.On.Probe = (&probes{broken: map[string]error{schedulerURL: errors.New("connection refused")}}).answer
			if err := Run(t.Context(), s.Env, []Phase{waitJoined()}, Options{}); err == nil {
				t.Fatal("a join whose scheduler doesn't run succeeds")
			}
			again := func(patched string) string {
				s.put(t, patch, patched)
				s.Earlier = LookBack(t.Context(), s.Env)
				s.said.Reset()
				s.play(t, kubeletStartJoin())
				s.play(t, controlPlanePrepare())
				return s.get(t, scheduler)
			}

			fact.NotIn(t, again(adding("--v=3")), "--no-such-flag")
			fact.In(t, s.said.String(), "Writing "+scheduler, "--no-such-flag=1", "--v=3")
			s.host.On.Probe = (&probes{}).answer
			s.play(t, waitJoined())
			s.Config.Join.Marked = false
			fact.In(t, again(adding("--v=4")), "--v=3")
			fact.In(t, s.said.String(), "[WARNING] keeping "+scheduler)
			fact.In(t, again(adding("--v=5")), "--v=3")
		})
	}
}

// joinedPlane is a control plane whose kubelet has its certificate. Its join is not over, as far as the host shows.
func joinedPlane(t *testing.T) *planeStage {
	t.Helper()
	s := preparedPlane(t)
	s.joins(t)
	return s
}

// joins starts the kubelet and etcd of a prepared control plane, and gives the kubelet its certificate.
func (s *planeStage) joins(t *testing.T) {
	t.Helper()
	ca, err := certs.ParsePair(s.shared["ca.crt"], s.shared["ca.key"])
	fatal(t, err)
	s.play(t, kubeletStartJoin())
	fatal(t, writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil))
	s.bootstrapped(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "cp-2", time.Now().Add(time.Hour))
}

// TestCorrectedJoinSparesEtcd: the etcd of a join that came to no end may be a voter that the others need, and so may one whose
// static Pod the phase's own command writes.
func TestCorrectedJoinSparesEtcd(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	for name, tt := range map[string]struct{ needed, alone bool }{
		"the others do without it":                {},
		"the others need it":                      {needed: true},
		"the phase alone":                         {alone: true},
		"the phase alone, and the others need it": {needed: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			needed := tt.needed
			s := joinedPlane(t)
			s.needsNotes(t)
			s.remove(t, "/etc/kubernetes/kubelet.conf")
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			of := &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}, {Name: "cp-2", PeerURL: peer}}}
			if needed {
				of.down = map[string]error{"cp-1": errors.New("connection refused")}
			}
			s.Etcd = of
			if !tt.alone {
				s.Earlier = LookBack(t.Context(), s.Env)
			}
			s.host.Jobs = nil
			before := s.get(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName))
			err := writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil)
			if kept := (*quorumError)(nil); errors.As(err, &kept) != needed || !needed && err != nil {
				t.Errorf("error %v", err)
			}
			if stays := s.get(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName)) == before; stays != needed {
				t.Errorf("the static Pod stays: %t", stays)
			}
			if stopped := s.host.Did("stop container"); (len(stopped) == 0) != (needed || tt.alone) {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}
