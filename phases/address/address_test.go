// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	former = "192.0.2.11"
	next   = "192.0.2.77"

	serverCert = "/etc/kubernetes/pki/apiserver.crt"
	flagsEnv   = "/var/lib/kubelet/kubeadm-flags.env"
)

// single is the only control plane of a cluster, whose host has another address now.
func single(t *testing.T) (*phasetest.Stage, *phasetest.FakeMembers) {
	t.Helper()
	s := phasetest.RestartStage(t, bootstrap.Init())
	s.Play(t, node.UploadConfig())
	s.Play(t, phasetest.Pick(bootstrap.Init(), "kubelet-start", "addon")...)
	phasetest.Fatal(t, s.API.Ensure(t.Context(), kubernetesEndpoints(former, next), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": "server: https://" + former + ":6443"},
	}))
	s.Put(t, flagsEnv, `KUBELET_KUBEADM_ARGS="--node-ip=`+former+` --v=2"`+"\n")
	s.FakeHost.Runs(time.Now(), manifests.Components(s.Config)...)
	s.FakeHost.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: time.Now().Add(time.Hour)}
	s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		s.FakeHost.Runs(time.Now().Add(2*time.Hour), id) // the kubelet starts it again
		return nil
	}
	s.Config.Hostname = "cp-1"
	s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr(next)}
	members := &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	s.Etcd = members
	s.FakeHost.Jobs, s.Done = nil, nil
	s.Said.Reset()
	return s, members
}

func kubernetesEndpoints(addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return slice
}

func run(t *testing.T, s *phasetest.Stage, wanted Move) error {
	t.Helper()
	m, moving, err := New(s.Host, s.Config, wanted)
	phasetest.Fatal(t, err)
	s.Config = moving
	return step.Run(t.Context(), s.Env, m.Phases(), step.Options{})
}

var toNext = Move{To: netip.MustParseAddr(next)}

// TestMove: afterwards, the former address is nowhere, and the keys are the same. The same command again changes nothing.
func TestMove(t *testing.T) {
	s, members := single(t)
	key := s.Get(t, "/etc/kubernetes/pki/apiserver.key")
	old := s.Cert(t, serverCert)
	phasetest.Fatal(t, run(t, s, toNext))
	for _, name := range []string{"etcd", "kube-apiserver"} {
		fact.In(t, s.Get(t, "/etc/kubernetes/manifests/"+name+".yaml"), next)
	}
	fact.In(t, s.Get(t, flagsEnv), "--node-ip="+next+" --v=2")
	for _, name := range []string{"kubelet", "controller-manager", "scheduler"} {
		fact.In(t, s.Get(t, "/etc/kubernetes/"+name+".conf"), "https://"+next+":6443")
	}
	m := &Move{From: []netip.Addr{netip.MustParseAddr(former)}, To: netip.MustParseAddr(next)}
	left, err := m.findRemaining(s.Env, "/etc/kubernetes")
	if err != nil || len(left) > 0 {
		t.Errorf("the former address is still in %q, %v", left, err)
	}
	for _, path := range []string{serverCert, "/etc/kubernetes/pki/etcd/server.crt", "/etc/kubernetes/pki/etcd/peer.crt"} {
		if cert := s.Cert(t, path); cert.VerifyHostname(next) != nil || cert.VerifyHostname(former) == nil {
			t.Errorf("%s is for %v", path, cert.IPAddresses)
		}
	}
	if cert := s.Cert(t, serverCert); !cmp.Equal(cert.DNSNames, old.DNSNames) || s.Get(t, "/etc/kubernetes/pki/apiserver.key") != key {
		t.Errorf("the certificate has the names %q, not %q, or another key", cert.DNSNames, old.DNSNames)
	}
	if at := members.List[0].PeerURL; at != phasetest.MovedPeer {
		t.Errorf("etcd's member is at %s", at)
	}
	for _, at := range [][3]string{{"kube-public", "cluster-info", "kubeconfig"}, {"kube-system", "kube-proxy", "kubeconfig.conf"}} {
		text, err := cluster.ConfigMapText(t.Context(), s.API, at[0], at[1], at[2])
		phasetest.Fatal(t, err)
		fact.In(t, text, "https://"+next+":6443")
	}
	slice := kubernetesEndpoints()
	if _, err := s.API.Get(t.Context(), slice); err != nil || !cmp.Equal(slice.Endpoints, kubernetesEndpoints(next).Endpoints) {
		t.Errorf("endpoints %v, %v", slice.Endpoints, err)
	}
	if stopped := s.FakeHost.Did("stop container"); !slices.Equal(stopped, []string{"kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager"}) {
		t.Errorf("stopped %q", stopped)
	}
	s.Done, s.FakeHost.Jobs, members.Did = nil, nil, nil
	phasetest.Fatal(t, run(t, s, toNext))
	if stopped := s.FakeHost.Did("stop container"); len(stopped)+len(s.Done) > 0 {
		t.Errorf("the second time, stopped %q and did %q", stopped, s.Done)
	}
}

// TestMoveBesideChange: a change that goes back, and can't at the former address, ends with the move. Any other is in the way. An edit
// that it had overwritten is still one afterwards.
func TestMoveBesideChange(t *testing.T) {
	const scheduler, settings = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/var/lib/kubelet/config.yaml"
	for _, addons := range []bool{false, true} {
		s, _ := single(t)
		made := s.Get(t, settings)
		phasetest.Fatal(t, s.Host.Remove(settings))
		_, err := s.Host.WriteFile(settings, []byte(made), 0o600)
		phasetest.Fatal(t, err)
		s.Append(t, settings, "podPidsLimit: 77\n")
		before, edited := s.Get(t, scheduler), s.Get(t, settings)
		writes := []trial.Write{{Path: scheduler, Data: []byte("new")}, {Path: settings, Data: []byte(made), Edited: true}}
		record, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", writes, trial.Record{
			Addons: addons, ConfigMaps: []trial.ConfigMap{{Name: "kubeadm-config", Before: "controlPlaneEndpoint: " + former + ":6443"}},
		})
		phasetest.Fatal(t, err)
		s.Put(t, scheduler, "new")
		_, err = s.Host.WriteFile(settings, []byte(made), 0o600)
		phasetest.Fatal(t, err)
		fact.Error(t, run(t, s, toNext), fault.UnfinishedChange)
		phasetest.Fatal(t, record.Set(s.Env, trial.Reverting))
		phasetest.Fatal(t, run(t, s, toNext))
		if got := s.Get(t, scheduler); got != before {
			t.Errorf("the scheduler's static Pod:\n%s", cmp.Diff(before, got))
		}
		fact.In(t, s.Get(t, phasetest.APIServerManifest), next)
		if of, err := backup.DetectEdit(s.Env, settings); err != nil || of != backup.Edited || s.Get(t, settings) != edited {
			t.Errorf("%v, %v: %s", of, err, s.Get(t, settings))
		}
		left, err := trial.Unfinished(s.Env)
		phasetest.Fatal(t, err)
		if addons != (left != nil) {
			t.Errorf("left to put back: %+v", left)
		}
		if left == nil {
			continue
		}
		if got := left.ConfigMaps[0].Before; got != "controlPlaneEndpoint: "+next+":6443" {
			t.Errorf("the add-ons go back to %q", got)
		}
		s.Put(t, scheduler, "newer")
		phasetest.Fatal(t, left.RollBack(t.Context(), s.Env, node.Lease{}))
		if got := s.Get(t, scheduler); got != "newer" {
			t.Errorf("the scheduler's static Pod was put back once more: %q", got)
		}
	}
}

// TestMoveOfServing: once the kubelet has restarted, the move looks for its request for a serving certificate with the next address.
func TestMoveOfServing(t *testing.T) {
	for name, move := range map[string]Move{"control plane": toNext, "kubelet": {NodeIP: next}} {
		t.Run(name, func(t *testing.T) {
			s, _ := single(t)
			const pem = "/var/lib/kubelet/pki/kubelet-server-current.pem"
			s.Append(t, "/var/lib/kubelet/config.yaml", "serverTLSBootstrap: true\n")
			s.Put(t, pem, "not a certificate\n")
			fact.Error(t, run(t, s, move), pem)
			names := []string{}
			for _, p := range move.Phases() {
				names = append(names, p.Name)
			}
			if slices.Index(names, "kubelet-serving") < slices.Index(names, "kubelet") {
				t.Errorf("the phases are %q", names)
			}
		})
	}
}

// TestMoveBack: the way back is the same command with the former address.
func TestMoveBack(t *testing.T) {
	s, members := single(t)
	server := s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml")
	phasetest.Fatal(t, run(t, s, toNext))
	s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr(former)}
	phasetest.Fatal(t, run(t, s, Move{To: netip.MustParseAddr(former)}))
	if got := s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml"); got != server || members.List[0].PeerURL != phasetest.OwnPeer {
		t.Errorf("etcd's member is at %s, and the API server's static Pod:\n%s", members.List[0].PeerURL, cmp.Diff(server, got))
	}
}

// TestMoveOn: a host that gets a third address before a move has ended moves there from both.
func TestMoveOn(t *testing.T) {
	s, _ := single(t)
	m, _, err := New(s.Host, s.Config, toNext)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, m.record(t.Context(), s.Env))
	again, _, err := New(s.Host, s.Config, Move{To: netip.MustParseAddr("192.0.2.99")})
	phasetest.Fatal(t, err)
	if want := []netip.Addr{netip.MustParseAddr(former), netip.MustParseAddr(next)}; !slices.Equal(again.From, want) {
		t.Errorf("from %v, not %v", again.From, want)
	}
}

// TestMoveBackFromNodeIP: an interrupted move's other addresses follow the next move, unless it names its own.
func TestMoveBackFromNodeIP(t *testing.T) {
	s, _ := single(t)
	m, _, err := New(s.Host, s.Config, Move{To: toNext.To, NodeIP: next + ",2001:db8::77", Server: next + ":6443"})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, m.record(t.Context(), s.Env))
	for name, test := range map[string]struct{ wanted, nodeIP, server string }{
		"on":   {next, next + ",2001:db8::77", next + ":6443"},
		"back": {former, former + ",2001:db8::77", former + ":6443"},
		"away": {"192.0.2.99", "192.0.2.99,2001:db8::77", "192.0.2.99:6443"},
	} {
		got, _, err := New(s.Host, s.Config, Move{To: netip.MustParseAddr(test.wanted)})
		phasetest.Fatal(t, err)
		if got.NodeIP != test.nodeIP || got.Server != test.server {
			t.Errorf("%s: node IP %s, server %s", name, got.NodeIP, got.Server)
		}
	}
	got, _, err := New(s.Host, s.Config, Move{To: toNext.To, NodeIP: "192.0.2.78"})
	if err != nil || got.NodeIP != "192.0.2.78" {
		t.Errorf("node IP %s, %v", got.NodeIP, err)
	}
}

// TestMoveOfAnotherMember: a journal that a reset by kubeadm has left isn't this node's.
func TestMoveOfAnotherMember(t *testing.T) {
	s, _ := single(t)
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0x7a, 1, true))
	m, _, err := New(s.Host, s.Config, toNext)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, m.record(t.Context(), s.Env))
	if m, _, err = New(s.Host, s.Config, toNext); err != nil || len(m.From) != 1 {
		t.Errorf("from %v, %v", m, err)
	}
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0x7b, 1, true))
	_, _, err = New(s.Host, s.Config, toNext)
	fact.Error(t, err, node.MoveJournalPath(s.Config.Paths), "7a", "7b")
}

// TestRefusals change nothing.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		hurt  func(*phasetest.Stage)
		move  Move
		facts []string
	}{
		"an address of another host": {func(s *phasetest.Stage) { s.FakeHost.Has.Addresses = nil }, toNext, []string{addressCheck, next}},
		"another family":             {func(s *phasetest.Stage) {}, Move{To: netip.MustParseAddr("2001:db8::77")}, []string{addressCheck, "2001:db8::77"}},
		"another hostname":           {func(s *phasetest.Stage) { s.Config.Hostname = "renamed" }, toNext, []string{hostnameCheck, "renamed", "cp-1"}},
		"a CA without its key":       {func(s *phasetest.Stage) { _ = s.Host.Remove("/etc/kubernetes/pki/ca.key") }, toNext, []string{keysCheck, serverCert}},
		"the kubelet's address":      {func(s *phasetest.Stage) {}, Move{To: toNext.To, NodeIP: "192.0.2.78"}, []string{"NodeIP", "192.0.2.78"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := single(t)
			test.hurt(s)
			server := s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml")
			err := run(t, s, test.move)
			if err == nil || s.Get(t, "/etc/kubernetes/manifests/kube-apiserver.yaml") != server || len(s.FakeHost.Did("stop container")) > 0 {
				t.Fatalf("changed something, or %v", err)
			}
			fact.In(t, s.Said.String()+err.Error(), test.facts...)
		})
	}
}

// TestWorker: a worker finds the API elsewhere, if it answers there.
func TestWorker(t *testing.T) {
	for name, answers := range map[string]bool{"answers": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			s, _ := single(t)
			s.Config.ControlPlane = false
			s.FakeHost.On.Date = func(_ context.Context, p host.Probe) (time.Time, error) {
				if !answers || !strings.HasPrefix(p.URL, "https://api.example.org:6443/") || len(p.CA) == 0 {
					return time.Time{}, context.DeadlineExceeded
				}
				return time.Now(), nil
			}
			err := run(t, s, Move{Server: "api.example.org:6443", NodeIP: next})
			if (err == nil) != answers || strings.Contains(s.Get(t, "/etc/kubernetes/kubelet.conf"), "api.example.org") != answers {
				t.Errorf("%v, and kubelet.conf:\n%s", err, s.Get(t, "/etc/kubernetes/kubelet.conf"))
			}
		})
	}
}
