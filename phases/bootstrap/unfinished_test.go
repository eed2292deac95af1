// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

type readable struct{ cluster.Cluster }

func (readable) Read(context.Context, cluster.Query, func(io.Reader) error) error { return nil }

const (
	configKey  = "/registry/configmaps/kube-system/kubeadm-config"
	serviceKey = "/registry/services/specs/default/kubernetes"
)

// failedInit is a host on which an init with a typo didn't finish: etcd has data, and no API server answers.
func failedInit(t *testing.T, typo string) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument+typo)
	s.Play(t, filePhases()...)
	needsNotes(t, s)
	s.Put(t, "/var/lib/etcd/member/wal/0.wal", "")
	s.FakeHost.On.Probe = noAPIServer
	s.Etcd = phasetest.AskedEtcd{}
	return s
}

// noAPIServer answers for everything but an API server.
func noAPIServer(_ context.Context, p host.Probe) error {
	if strings.HasSuffix(p.URL, ":6443/readyz") {
		return syscall.ECONNREFUSED
	}
	return nil
}

func needsNotes(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	if !s.FakeHost.CreatedBySlipway("/var/lib/kubelet/config.yaml") {
		t.Skip("this file system, or this user, keeps no notes of what was made")
	}
}

// again prepares the same host for another run, with another configuration.
func again(t *testing.T, s *phasetest.Stage, documents string) {
	t.Helper()
	s.Config = fixture.Node(t, documents)
	s.Earlier = DetectEarlierRun(t.Context(), s.Env)
	s.Said.Reset()
	s.FakeHost.Jobs = nil
}

// refused maps the checks that keep init from changing files to their messages.
func refused(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	checks, err := initChecks(t.Context(), s.Env)
	if err != nil {
		t.Fatal(err)
	}
	checks = slices.DeleteFunc(checks, func(c preflight.Check) bool {
		return c.Name != "Configuration" && !strings.HasPrefix(c.Name, "FileAvailable-")
	})
	found := map[string]string{}
	for _, f := range preflight.Run(t.Context(), checks, s.FakeHost, nil)[fault.Error] {
		found[f.Name] += f.Message + "\n"
	}
	return found
}

const typo = "apiServer: {extraArgs: [{name: no-such-flag, value: '1'}]}\n"

// TestCorrectedInit: a corrected configuration replaces everything a failed init made: static Pods, the kubelet's files,
// certificates and kubeconfig files. Edited files stay, and are refused.
func TestCorrectedInit(t *testing.T) {
	s := failedInit(t, typo)
	key := s.Get(t, "/etc/kubernetes/pki/apiserver.key")
	again(t, s, strings.Replace(fixture.InitDocument, "name: cp-1", "name: n1", 1)+"timeouts: {controlPlaneComponentHealthCheck: 10m}\n"+
		fixture.ClusterDocument+"apiServer: {certSANs: [api.example.org]}\ncontrolPlaneEndpoint: api.example.org:6443\nnetworking: {dnsDomain: example.org}\n")
	if !s.Rerun {
		t.Fatal("the host is not recognized")
	}
	if found := refused(t, s); len(found) > 0 {
		t.Fatalf("refused: %q", found)
	}
	s.Play(t, filePhases()...)

	said := s.Said.String()
	fact.In(t, said, "Writing "+phasetest.APIServerManifest, "--no-such-flag=1", "apiserver.crt", "api.example.org", "kubelet.conf", "system:node:n1")
	fact.NotIn(t, said, "[WARNING] keeping")
	fact.NotIn(t, s.Get(t, phasetest.APIServerManifest), "no-such-flag")
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		fact.In(t, s.Get(t, "/etc/kubernetes/manifests/"+component+".yaml"), "failureThreshold: 60")
	}
	fact.In(t, s.Get(t, "/etc/kubernetes/admin.conf"), "https://api.example.org:6443")
	fact.In(t, s.Get(t, kubeletSettingsIn), "clusterDomain: example.org")
	fact.In(t, s.Get(t, kubeletFlagsIn), "--hostname-override=n1")
	leaf, err := certs.FirstCert([]byte(s.Get(t, "/etc/kubernetes/pki/apiserver.crt")))
	if err != nil || leaf.VerifyHostname("api.example.org") != nil {
		t.Errorf("the certificate has %q, %v", leaf.DNSNames, err)
	}
	if s.Get(t, "/etc/kubernetes/pki/apiserver.key") != key {
		t.Error("the key was replaced")
	}
	s.Unfinished = false
	if faults := s.PKI().Faults(); len(faults) > 0 {
		t.Errorf("it left %q", faults)
	}
	if orders := s.FakeHost.Orders(); !slices.Contains(orders, "restart kubelet.service") {
		t.Errorf("the kubelet would take half a minute for the new static Pods: %q", orders)
	}
	again(t, s, fixture.InitDocument+fixture.ClusterDocument)
	if !s.Unfinished {
		t.Error("a third configuration would be refused")
	}
}

// TestCorrectedInitStops the components with old static Pods: the API server before etcd, since each waits for the other.
func TestCorrectedInitStops(t *testing.T) {
	s := failedInit(t, "etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: snapshot-count, value: '5'}]}}\n")
	for _, component := range []string{"etcd", "kube-apiserver"} {
		s.FakeHost.Has.Running[component] = []host.Container{{ID: component, Created: time.Now().Add(time.Hour)}}
	}
	again(t, s, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, localEtcd())
	orders := s.FakeHost.Orders()
	api, member := slices.IndexFunc(orders, contains("kube-apiserver")), slices.IndexFunc(orders, contains("etcd"))
	if api < 0 || member < api || !slices.Contains(orders[member:], "restart kubelet.service") {
		t.Errorf("orders %q", orders)
	}
	s.FakeHost.Jobs = nil
	s.Play(t, localEtcd())
	if orders := s.FakeHost.Orders(); len(orders) > 0 {
		t.Errorf("a third run did %q", orders)
	}
}

// TestCorrectedInitOutrunsKubelet: until it restarts, the kubelet may start the container with the typo once more. Its failure
// must not be taken for the corrected one's.
func TestCorrectedInitOutrunsKubelet(t *testing.T) {
	s := failedInit(t, "scheduler: {extraArgs: [{name: no-such-flag, value: '1'}]}\n")
	s.FakeHost.Runs(time.Now().Add(-time.Hour), manifests.SchedulerName)
	again(t, s, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, controlPlane())
	orders := s.FakeHost.Orders()
	restart := slices.Index(orders, "restart kubelet.service")
	if restart < 0 || !slices.Contains(orders[restart:], "stop container "+manifests.SchedulerName) ||
		!slices.Contains(orders[restart:], "remove exited "+manifests.SchedulerName) {
		t.Errorf("orders %q", orders)
	}
}

// TestCorrectedInitSparesEtcd: an init that looks unfinished may have been that of a cluster with several members. An etcd that
// has never come up is corrected.
func TestCorrectedInitSparesEtcd(t *testing.T) {
	down := errors.New("connection refused")
	both := []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}
	for name, tt := range map[string]struct {
		etcd  *phasetest.FakeMembers
		needs bool
	}{
		"it is alone":         {&phasetest.FakeMembers{List: both[:1]}, false},
		"it is alone, broken": {&phasetest.FakeMembers{List: both[:1], Down: map[string]error{"cp-1": down}}, false},
		"it never came up":    {&phasetest.FakeMembers{Fail: map[string]error{"health": down}}, false},
		"another needs it":    {&phasetest.FakeMembers{List: both, Down: map[string]error{"cp-2": down}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := failedInit(t, "etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: snapshot-count, value: '5'}]}}\n")
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			again(t, s, fixture.InitDocument+fixture.ClusterDocument)
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			s.Etcd = tt.etcd
			err := step.Run(t.Context(), s.Env, []step.Phase{localEtcd()}, step.Options{})
			if kept := (*node.QuorumError)(nil); errors.As(err, &kept) != tt.needs || !tt.needs && err != nil {
				t.Errorf("error %v", err)
			}
			if stopped := s.FakeHost.Did("stop container"); (len(stopped) == 0) != tt.needs {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}

func contains(text string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, text) }
}

// TestCorrectedInitKeepsEdits: an edited file is refused while nobody can say whose it is, and isn't overwritten.
func TestCorrectedInitKeepsEdits(t *testing.T) {
	s := failedInit(t, typo)
	s.Append(t, "/etc/kubernetes/manifests/kube-scheduler.yaml", "# mine\n")
	s.Append(t, kubeletSettingsIn, "maxPods: 17\n")
	again(t, s, fixture.InitDocument+"timeouts: {controlPlaneComponentHealthCheck: 10m}\n"+fixture.ClusterDocument)
	found := refused(t, s)
	if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, []string{"Configuration", "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml"}) {
		t.Errorf("refused %q", found)
	}
	fact.In(t, found["Configuration"], kubeletSettingsIn, "maxPods: 17")
	s.Play(t, filePhases()...)
	fact.In(t, s.Get(t, kubeletSettingsIn), "maxPods: 17")
	fact.In(t, s.Get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"), "# mine")
	fact.NotIn(t, s.Get(t, phasetest.APIServerManifest), "no-such-flag")
}

// TestSlowInitGetsMoreTime: after an init that was only too slow, the same configuration with a longer timeout is accepted even if
// nobody answers yet. Edits and other differences are still refused.
func TestSlowInitGetsMoreTime(t *testing.T) {
	const (
		longer    = "timeouts: {controlPlaneComponentHealthCheck: 45m}\n"
		scheduler = "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml"
	)
	for _, tt := range []struct {
		name, more string
		change     func(t *testing.T, s *phasetest.Stage)
		refused    []string
	}{
		{"only the timeout", "", func(*testing.T, *phasetest.Stage) {}, nil},
		{"an edit", "", func(t *testing.T, s *phasetest.Stage) {
			s.Append(t, "/etc/kubernetes/manifests/kube-scheduler.yaml", "# mine\n")
		}, []string{scheduler}},
		{"another flag, too", "scheduler: {extraArgs: [{name: v, value: '4'}]}\n", func(*testing.T, *phasetest.Stage) {}, []string{scheduler}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := failedInit(t, "")
			s.Etcd = phasetest.AskedEtcd{Err: errors.New("deadline exceeded")}
			tt.change(t, s)
			again(t, s, fixture.InitDocument+longer+fixture.ClusterDocument+tt.more)
			if s.Unfinished {
				t.Fatal("somebody answered")
			}
			found := refused(t, s)
			if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, tt.refused) {
				t.Errorf("refused %q", found)
			}
		})
	}
}

// TestSlowHostMayAnswerLater: where components may take longer to start, they may take longer to answer.
func TestSlowHostMayAnswerLater(t *testing.T) {
	s := failedInit(t, "")
	given := map[string]time.Duration{}
	note := func(ctx context.Context, who string) {
		deadline, _ := ctx.Deadline()
		given[who] = time.Until(deadline)
	}
	s.FakeHost.On.Probe = func(ctx context.Context, p host.Probe) error { note(ctx, "API server"); return noAPIServer(ctx, p) }
	s.Etcd = notedEtcd{phasetest.AskedEtcd{}, func(ctx context.Context) { note(ctx, "etcd") }}
	again(t, s, fixture.InitDocument+"timeouts: {controlPlaneComponentHealthCheck: 80h}\n"+fixture.ClusterDocument)
	for _, who := range []string{"API server", "etcd"} {
		if given[who] < time.Hour/2 {
			t.Errorf("%s gets %s", who, given[who])
		}
	}
}

type notedEtcd struct {
	etcd.Etcd
	note func(context.Context)
}

func (e notedEtcd) Has(ctx context.Context, key string) (bool, error) {
	e.note(ctx)
	return e.Etcd.Has(ctx, key)
}

// TestUnfinishedInit: the cluster shows whether an init finished; if it can't be asked, its etcd and kubelet.conf do. As long as
// that's unknown, another configuration is refused.
func TestUnfinishedInit(t *testing.T) {
	answers := func(s *phasetest.Stage) { s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil } }
	finished := func(t *testing.T, s *phasetest.Stage) {
		t.Helper()
		s.Rotated(t, phasetest.KubeletPEM, "cp-1", time.Now().Add(time.Hour))
		s.Play(t, kubelet.Finalize())
	}
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, s *phasetest.Stage)
		refused bool
	}{
		{"no API server, and an etcd without the configuration", func(*testing.T, *phasetest.Stage) {}, false},
		{"no API server, and an etcd with the configuration", func(_ *testing.T, s *phasetest.Stage) { s.Etcd = phasetest.AskedEtcd{Keys: []string{configKey}} }, true},
		{"no etcd that answers", func(_ *testing.T, s *phasetest.Stage) { s.Etcd = phasetest.AskedEtcd{Err: errors.New("down")} }, true},
		{"no etcd yet", func(t *testing.T, s *phasetest.Stage) {
			s.Etcd = phasetest.AskedEtcd{Err: errors.New("down")}
			s.Remove(t, "/var/lib/etcd/member")
		}, false},
		{"a cluster without the configuration", func(_ *testing.T, s *phasetest.Stage) {
			answers(s)
			s.Etcd, s.Cluster = nil, readable{s.API}
		}, false},
		{"a cluster with another configuration", func(t *testing.T, s *phasetest.Stage) { answers(s); s.Play(t, node.UploadConfig()) }, true},
		{"a kubelet that rotates its certificate", func(t *testing.T, s *phasetest.Stage) { finished(t, s) }, true},
		{"an edited kubelet.conf", func(t *testing.T, s *phasetest.Stage) { s.Append(t, "/etc/kubernetes/kubelet.conf", "# mine\n") }, true},
		{"a node that has joined", func(t *testing.T, s *phasetest.Stage) {
			s.Remove(t, "/etc/kubernetes/kubelet.conf")
			fixture.BootstrapKubelet(t, s.Root, fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour)), "cp-1", time.Now().Add(time.Hour))
		}, true},
		{"another address of etcd's member", func(t *testing.T, s *phasetest.Stage) {
			again(t, s, strings.Replace(fixture.InitDocument, "192.0.2.11", "192.0.2.12", 1)+fixture.ClusterDocument)
		}, true},
		{"another address of etcd's member, which there is not yet", func(t *testing.T, s *phasetest.Stage) {
			s.Remove(t, "/var/lib/etcd/member")
			again(t, s, strings.Replace(fixture.InitDocument, "192.0.2.11", "192.0.2.12", 1)+fixture.ClusterDocument)
		}, false},
		{"another network of Services", func(t *testing.T, s *phasetest.Stage) {
			s.Etcd = phasetest.AskedEtcd{Keys: []string{serviceKey}}
			again(t, s, fixture.InitDocument+fixture.ClusterDocument+"networking: {serviceSubnet: 10.97.0.0/16}\n")
		}, true},
		{"another network of Services, as there is none yet", func(t *testing.T, s *phasetest.Stage) {
			again(t, s, fixture.InitDocument+fixture.ClusterDocument+"networking: {serviceSubnet: 10.97.0.0/16}\n")
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := failedInit(t, typo)
			first := s.Config
			again(t, s, fixture.InitDocument+fixture.ClusterDocument)
			second := s.Config
			s.Config = first // the change happens before the second run
			s.Earlier = step.Earlier{}
			tt.change(t, s)
			if s.Config == first {
				s.Config = second
			}
			s.Earlier = DetectEarlierRun(t.Context(), s.Env)
			if found := refused(t, s); (len(found) > 0) != tt.refused {
				t.Errorf("refused: %q", found)
			}
		})
	}
}

// TestCorrectedName: a kubelet prefers the certificate it has received to the one in kubelet.conf.
func TestCorrectedName(t *testing.T) {
	for name, kept := range map[string]bool{"cp-1": true, "other": false} {
		s := failedInit(t, typo)
		s.Rotated(t, phasetest.KubeletPEM, name, time.Now().Add(time.Hour))
		again(t, s, fixture.InitDocument+fixture.ClusterDocument)
		s.Play(t, kubelet.Start())
		if _, err := s.FakeHost.Lstat(phasetest.KubeletPEM); (err == nil) != kept {
			t.Errorf("certificate of %s: %v", name, err)
		}
	}
}

// TestEarlierClustersCertificate: a first run removes the certificate that a kubelet got in an earlier cluster under the same name.
func TestEarlierClustersCertificate(t *testing.T) {
	later := time.Now().Add(time.Hour)
	other := fixture.Signed(t, fixture.Pair{}, "kubernetes", later)
	of := string(certs.EncodeCerts(fixture.Signed(t, other, "system:node:cp-1", later).Cert))
	for name, tt := range map[string]struct {
		make func(t *testing.T, s *phasetest.Stage)
		kept bool
	}{
		"of an earlier cluster": {func(t *testing.T, s *phasetest.Stage) { s.Put(t, phasetest.KubeletPEM, of) }, false},
		"of this one":           {func(t *testing.T, s *phasetest.Stage) { s.Certified(t, "cp-1") }, true},
		"of a CA that the API server accepts, too": {func(t *testing.T, s *phasetest.Stage) {
			s.Put(t, phasetest.KubeletPEM, of)
			s.Play(t, controlPlane())
			s.EditPod(t, manifests.APIServerName, "--client-ca-file=/etc/kubernetes/pki/ca.crt", "--client-ca-file=/etc/kubernetes/pki/clients.crt")
			s.Put(t, "/etc/kubernetes/pki/clients.crt", string(certs.EncodeCerts(other.Cert)))
		}, true},
		"named in kubelet.conf": {func(t *testing.T, s *phasetest.Stage) {
			s.Certified(t, "cp-1")
			s.Play(t, kubelet.Finalize())
			s.Put(t, phasetest.KubeletPEM, of)
		}, true},
		"none at all": {func(t *testing.T, s *phasetest.Stage) { s.Put(t, phasetest.KubeletPEM, "x") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Play(t, certificates(), kubeconfigs())
			tt.make(t, s)
			s.Play(t, kubelet.Start())
			_, err := s.FakeHost.Lstat(phasetest.KubeletPEM)
			if (err == nil) != tt.kept {
				t.Errorf("kept: %v, want %v", err == nil, tt.kept)
			}
		})
	}
}

// TestCorrectedJoin: until the cluster has a control plane's kubelet, its join is unfinished, and another patch or address
// replaces an earlier join's files. The Node's marks say nothing about that.
func TestCorrectedJoin(t *testing.T) {
	const bootstrap = "/etc/kubernetes/bootstrap-kubelet.conf"
	for name, tt := range map[string]struct {
		end      func(t *testing.T, s *planeStage) // how the earlier join ended
		replaces []string
	}{
		"no certificate yet": {func(t *testing.T, s *planeStage) {
			s.Remove(t, "/etc/kubernetes/kubelet.conf")
		}, []string{"etcd", "kube-apiserver"}},
		"not registered yet":  {func(_ *testing.T, s *planeStage) { s.Config.Join.NodeGone = true }, []string{"kube-apiserver"}},
		"registered":          {func(*testing.T, *planeStage) {}, nil},
		"registered long ago": {func(t *testing.T, s *planeStage) { s.Remove(t, bootstrap); s.Config.Join.NodeGone = true }, nil},
		"its certificate is lost": {func(t *testing.T, s *planeStage) {
			s.Remove(t, "/etc/kubernetes/kubelet.conf")
			s.Remove(t, bootstrap)
			s.Config.Join.Marked = true
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := joinedPlane(t)
			needsNotes(t, s.Stage)
			tt.end(t, s)
			s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			s.Earlier = DetectEarlierRun(t.Context(), s.Env)
			before := map[string]string{}
			for _, c := range []string{"etcd", "kube-apiserver"} {
				before[c] = s.Get(t, s.Config.Paths.StaticPod(c))
			}
			s.Play(t, joinStaticPods())
			phasetest.Fatal(t, writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil))
			for c, text := range before {
				if changed := s.Get(t, s.Config.Paths.StaticPod(c)) != text; changed != slices.Contains(tt.replaces, c) {
					t.Errorf("%s written: %t", c, changed)
				}
			}
		})
	}
}

// TestCorrectedJoinOfBrokenComponent: a join whose scheduler never became healthy takes a corrected patch, although the kubelet
// has registered its Node. Once the components have been healthy, the join is complete, and another patch replaces nothing, even
// if an administrator has removed the Node's marks.
func TestCorrectedJoinOfBrokenComponent(t *testing.T) {
	const scheduler, patch = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/patches/kube-scheduler+json.json"
	adding := func(flag string) string {
		return `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "` + flag + `"}]`
	}
	for name, marked := range map[string]bool{"unmarked": false, "a Node of the same name was marked": true} {
		t.Run(name, func(t *testing.T) {
			s := newPlaneStage(t, phasetest.StoredPlane)
			phasetest.Fatal(t, s.discoverPlane(t, phasetest.SomeKey))
			s.Config.Timeouts.ControlPlaneComponentHealthCheck = 150 * time.Millisecond
			s.Config.PatchesDir, s.Config.Join.Marked = "/patches", marked
			s.Put(t, patch, adding("--no-such-flag=1"))
			s.Earlier = DetectEarlierRun(t.Context(), s.Env)
			s.Play(t, controlPlanePrepare())
			s.joins(t)
			needsNotes(t, s.Stage)
			s.FakeHost.On.Probe = (&phasetest.Probes{Broken: map[string]error{phasetest.SchedulerURL: errors.New("connection refused")}}).Answer
			if err := step.Run(t.Context(), s.Env, []step.Phase{waitJoined()}, step.Options{}); err == nil {
				t.Fatal("a join whose scheduler doesn't run succeeds")
			}
			again := func(patched string) string {
				s.Put(t, patch, patched)
				s.Earlier = DetectEarlierRun(t.Context(), s.Env)
				s.Said.Reset()
				s.Play(t, kubelet.StartJoin())
				s.Play(t, controlPlanePrepare())
				return s.Get(t, scheduler)
			}

			fact.NotIn(t, again(adding("--v=3")), "--no-such-flag")
			fact.In(t, s.Said.String(), "Writing "+scheduler, "--no-such-flag=1", "--v=3")
			s.FakeHost.On.Probe = (&phasetest.Probes{}).Answer
			s.Play(t, waitJoined())
			s.Config.Join.Marked = false
			fact.In(t, again(adding("--v=4")), "--v=3")
			fact.In(t, s.Said.String(), "[WARNING] keeping "+scheduler)
			fact.In(t, again(adding("--v=5")), "--v=3")
		})
	}
}

// joinedPlane is a control plane whose kubelet has its certificate. As far as the host shows, its join isn't over.
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
	phasetest.Fatal(t, err)
	s.Play(t, kubelet.StartJoin())
	phasetest.Fatal(t, writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil))
	s.Bootstrapped(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "cp-2", time.Now().Add(time.Hour))
}

// TestCorrectedJoinSparesEtcd: the etcd of an unfinished join may be a voter the others need, even if only the phase's own
// command writes its static Pod.
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
			needsNotes(t, s.Stage)
			s.Remove(t, "/etc/kubernetes/kubelet.conf")
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			of := &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}, {Name: "cp-2", PeerURL: peer}}}
			if needed {
				of.Down = map[string]error{"cp-1": errors.New("connection refused")}
			}
			s.Etcd = of
			if !tt.alone {
				s.Earlier = DetectEarlierRun(t.Context(), s.Env)
			}
			s.FakeHost.Jobs = nil
			before := s.Get(t, s.Config.Paths.StaticPod(manifests.EtcdName))
			err := writeStaticPod(t.Context(), s.Env, manifests.EtcdName, nil)
			if kept := (*node.QuorumError)(nil); errors.As(err, &kept) != needed || !needed && err != nil {
				t.Errorf("error %v", err)
			}
			if stays := s.Get(t, s.Config.Paths.StaticPod(manifests.EtcdName)) == before; stays != needed {
				t.Errorf("the static Pod stays: %t", stays)
			}
			if stopped := s.FakeHost.Did("stop container"); (len(stopped) == 0) != (needed || tt.alone) {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}
