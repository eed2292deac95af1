// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestEtcdDataReplacementPlace: the data goes to where etcd looks for it, or nowhere.
func TestEtcdExchangePlace(t *testing.T) {
	mount := func(c *corev1.Container, at string) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "etcd-certs", MountPath: at})
	}
	for name, row := range map[string]struct {
		change func(c *corev1.Container)
		data   string
		facts  []string // of the error
	}{
		"as it is":                 {func(*corev1.Container) {}, "/var/lib/etcd/member", nil},
		"a directory below":        {func(c *corev1.Container) { c.Args = []string{"--data-dir=/var/lib/etcd/data"} }, "/var/lib/etcd/data/member", nil},
		"one dash":                 {func(c *corev1.Container) { c.Args = []string{"-data-dir", "/var/lib/etcd/data"} }, "/var/lib/etcd/data/member", nil},
		"another mount":            {func(c *corev1.Container) { c.Args = []string{"--data-dir=/etc/kubernetes/pki/etcd/x"} }, "/etc/kubernetes/pki/etcd/x/member", nil},
		"a log elsewhere":          {func(c *corev1.Container) { c.Args = []string{"--wal-dir=/wal"} }, "", []string{"/wal"}},
		"a log, with one dash":     {func(c *corev1.Container) { c.Args = []string{"-wal-dir=/wal"} }, "", []string{"/wal"}},
		"a log by the environment": {func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "ETCD_WAL_DIR", Value: "/wal"}} }, "", []string{"/wal"}},
		"a log from a field": {func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "ETCD_WAL_DIR", ValueFrom: &corev1.EnvVarSource{}}}
		}, "", []string{"ETCD_WAL_DIR"}},
		"a log on another mount": {func(c *corev1.Container) { mount(c, "/var/lib/etcd/member/wal") }, "", []string{"/var/lib/etcd/member/wal"}},
		"settings in a file":     {func(c *corev1.Container) { c.Args = []string{"--config-file=/etc/etcd.yaml"} }, "", []string{"/etc/etcd.yaml"}},
		"a mount beside":         {func(c *corev1.Container) { mount(c, "/var/lib/etcd-2") }, "/var/lib/etcd/member", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			pod := manifests.Etcd(s.Config, manifests.HostView{}, nil)
			row.change(&pod.Spec.Containers[0])
			data, err := manifests.Encode(pod)
			phasetest.Fatal(t, err)
			x, err := node.NewEtcdDataReplacement(data)
			if fact.Error(t, err, row.facts...); x.Data != row.data {
				t.Errorf("the data is in %q, want %q", x.Data, row.data)
			}
		})
	}
}

// mounted is a host with mount points.
type mounted struct {
	host.Host
	at []string
}

func (m mounted) Mounts(string) ([]string, error) { return m.at, nil }

// TestEtcdDataReplacementPossible: what would stop a replacement halfway is found out before etcd stops.
func TestEtcdExchangePossible(t *testing.T) {
	x := node.EtcdDataReplacement{Data: "/var/lib/etcd/member"}
	for name, row := range map[string]struct {
		mounts []string
		unit   error
		facts  []string
	}{
		"nothing in the way":  {nil, nil, nil},
		"a mount beside":      {[]string{"/var/lib/etcd/member.old"}, nil, nil},
		"the data is a mount": {[]string{"/var/lib/etcd/member"}, nil, []string{"/var/lib/etcd/member"}},
		"the log is a mount":  {[]string{"/var/lib/etcd/member/wal"}, nil, []string{"/var/lib/etcd/member/wal"}},
		"no systemd":          {nil, host.ErrNoSystemd, []string{"systemd"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			if row.unit != nil {
				s.FakeHost.Fail = map[string]error{"Unit": row.unit}
			}
			s.Host = mounted{s.FakeHost, row.mounts}
			err := x.CheckPrerequisites(t.Context(), s.Env)
			if fact.Error(t, err, row.facts...); row.unit != nil && !errors.Is(err, row.unit) {
				t.Error(err)
			}
		})
	}
}

// TestInterruptedEtcdIsLocal: a run that was interrupted has removed etcd's static Pod, but the etcd is still this host's.
func TestInterruptedEtcdIsLocal(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, phasetest.APIServerManifest, "spec: {containers: [{command: [kube-apiserver, '--etcd-servers=https://192.0.2.5:2379']}]}")
	if found, err := node.ExternalEtcd(s.Env); err != nil || found == nil {
		t.Errorf("without a journal: %v, %v", found, err)
	}
	phasetest.Fatal(t, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/member.before", Manifest: "etcd"}.Write(s.Env))
	if found, err := node.ExternalEtcd(s.Env); err != nil || found != nil {
		t.Errorf("with a journal: %v, %v", found, err)
	}
}

// cluster is an etcd with an ID.
type cluster struct {
	etcd.Etcd
	id uint64
}

func (c cluster) Members(context.Context) ([]etcd.Member, error) {
	return []etcd.Member{{Cluster: c.id}}, nil
}

// TestEtcdProof: a workflow doesn't go on with other data than it has made, and no etcd starts before the data is in place.
func TestEtcdProof(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	manifest, err := manifests.Encode(manifests.Etcd(s.Config, manifests.HostView{}, nil))
	phasetest.Fatal(t, err)
	x, err := node.NewEtcdDataReplacement(manifest)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, node.CheckEtcdStartable(s.Env))
	phasetest.Fatal(t, node.EtcdJournal{Command: "init --restore", From: "/a.db", Manifest: string(manifest), Cluster: "c"}.Write(s.Env))
	fact.Error(t, x.CheckData(s.Env, "c"), "/var/lib/etcd/member/wal")
	fact.Error(t, node.CheckEtcdStartable(s.Env), "`slipway init --restore /a.db`")
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xb, true))
	fact.Error(t, x.CheckData(s.Env, "c"), "b", "c")
	fact.Error(t, node.CheckEtcdStartable(s.Env), "b", "c")
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xc, true))
	phasetest.Fatal(t, x.CheckData(s.Env, "c"))
	phasetest.Fatal(t, x.CheckData(s.Env, "")) // a plan
	phasetest.Fatal(t, node.CheckEtcdStartable(s.Env))
	s.Etcd = cluster{id: 0xb}
	fact.Error(t, node.CheckServedCluster(t.Context(), s.Env, "c"), "b", "c")
	s.Etcd = cluster{id: 0xc}
	phasetest.Fatal(t, node.CheckServedCluster(t.Context(), s.Env, "c"))
	phasetest.Fatal(t, node.CheckServedCluster(t.Context(), s.Env, ""))
}

// TestOwnEtcdCluster: a host's data says which cluster its etcd belongs to, also while a workflow has removed the static Pod.
func TestOwnEtcdCluster(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	is := func(want uint64) {
		t.Helper()
		if have, err := node.OwnEtcdCluster(s.Env); err != nil || have != want {
			t.Errorf("%x, %v, want %x", have, err, want)
		}
	}
	is(0) // no etcd
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xc, true))
	is(0)
	manifest, err := manifests.Encode(manifests.Etcd(s.Config, manifests.HostView{}, nil))
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, node.EtcdJournal{Command: "etcd recover", Manifest: string(manifest)}.Write(s.Env))
	is(0xc)
	s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(manifest))
	is(0xc)
	s.Put(t, phasetest.EtcdLog, "no log")
	if _, err := node.OwnEtcdCluster(s.Env); err == nil {
		t.Error("no error")
	}
	s.Remove(t, phasetest.EtcdLog)
	is(0) // as before etcd's first start
}

// TestBuildEnds: an operator who ends a command while it makes data keeps a running etcd, and nothing half made.
func TestBuildEnds(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", "etcd")
	s.Put(t, "/var/lib/etcd/member/snap/db", "data")
	x := node.EtcdDataReplacement{Data: "/var/lib/etcd/member", NewData: "/var/lib/etcd/member.new"}
	ended := errors.New("the operator has ended it")
	for name, after := range map[string]bool{"while it reads": false, "once all is read": true} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			fill := func(string) error {
				end(ended)
				if after {
					return nil
				}
				_, err := etcd.Pace(0).Writer(ctx, io.Discard).Write([]byte("data"))
				return err
			}
			if err := x.Build(ctx, s.Env, func() error { return nil }, fill); !errors.Is(err, ended) {
				t.Errorf("it was built: %v", err)
			}
			if err := x.Stop(ctx, s.Env, 0); !errors.Is(err, ended) {
				t.Errorf("it was stopped: %v", err)
			}
			if s.Get(t, "/etc/kubernetes/manifests/etcd.yaml") != "etcd" {
				t.Error("etcd's static Pod is gone")
			}
			if made, err := host.Exists(s.Host, x.NewData); err != nil || made != after {
				t.Errorf("new data: %t, %v", made, err)
			}
		})
	}
}

// TestClear: only data that isn't in place goes, and only while nobody needs it.
func TestClear(t *testing.T) {
	const half, whole, half2, replay = ".member.new.slipway-ABCDEFGH", "member.new", ".member.replay.slipway-ABCDEFGH", "member.replay"
	kept := []string{"member", "member.before-restore-2026-11-27-12-00-00", "member.new.mine", "memory"}
	for name, c := range map[string]struct {
		old  string
		pod  bool // of an etcd that replays
		left []string
	}{
		"a run was killed":     {"", false, nil},
		"and had etcd stopped": {"/var/lib/etcd/member.before-x", false, nil},
		"an etcd replays":      {"", true, []string{replay}},
		"the data has moved":   {"/var/lib/etcd/member.before-restore-2026-11-27-12-00-00", false, []string{half, whole, half2, replay}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			for _, dir := range slices.Concat(kept, []string{half, whole, half2, replay}) {
				s.Put(t, "/var/lib/etcd/"+dir+"/snap/db", "data")
			}
			if c.pod {
				s.Put(t, s.Config.Paths.StaticPod(thisnode.EtcdReplayName), "etcd-replay")
			}
			x := node.EtcdDataReplacement{Data: "/var/lib/etcd/member", NewData: "/var/lib/etcd/member.new", OldData: c.old}
			phasetest.Fatal(t, x.Clear(s.Env))
			fact.List(t, fixture.Entries(t, s.Root+"/var/lib/etcd"), slices.Sorted(slices.Values(slices.Concat(kept, c.left)))...)
		})
	}
}

// TestBuildClears: a half-built copy takes no space when a run asks for it.
func TestBuildClears(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, "/var/lib/etcd/.member.new.slipway-ABCDEFGH/snap/db", "data")
	s.Put(t, "/var/lib/etcd/member.replay/member/snap/db", "data") // it may be made of this
	x := node.EtcdDataReplacement{Data: "/var/lib/etcd/member", NewData: "/var/lib/etcd/member.new"}
	enough := errors.New("enough")
	ready := func() error {
		fact.List(t, fixture.Entries(t, s.Root+"/var/lib/etcd"), "member.replay")
		return enough
	}
	if err := x.Build(t.Context(), s.Env, ready, nil); !errors.Is(err, enough) {
		t.Error(err)
	}
}
