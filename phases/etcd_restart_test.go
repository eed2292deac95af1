// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
)

// patched is the static Pod of etcd, and one with another flag.
func (s *stage) patched(t *testing.T) (before, wanted []byte) {
	t.Helper()
	text := s.get(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName))
	after := strings.Replace(text, "    - --name=", "    - --log-level=warn\n    - --name=", 1)
	if after == text {
		t.Fatalf("no --name in\n%s", text)
	}
	return []byte(text), []byte(after)
}

// etcdRestart is a workflow that restarts this control plane's etcd and nothing else. refuses tells whether an error says that
// the others need this member.
type etcdRestart struct {
	name    string
	init    func() []Phase
	run     func(*testing.T, *stage) error
	refuses func(error) bool
}

// onlyEtcdStale is a control plane of which only etcd's files change: the other containers are newer than all of them.
func onlyEtcdStale(t *testing.T, init []Phase) *stage {
	t.Helper()
	s := restartStage(t, init)
	s.host.Runs(time.Now().Add(time.Hour), manifests.Components(s.Config)...)
	s.host.Runs(time.Time{}, manifests.EtcdName)
	s.Config.Timeouts.EtcdAPICall = time.Millisecond
	s.Config.Upgrade = &config.Upgrade{Etcd: true}
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	s.host.Jobs = nil
	// Containers that the kubelet starts again are new.
	s.host.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		s.host.Runs(time.Now().Add(2*time.Hour), id)
		return nil
	}
	return s
}

// voters are three members, with what is wrong with each.
type voters struct {
	members
	own, cp2, cp3 error
	leaderless    bool // this one says so itself
}

func (v *voters) Health(context.Context) ([]etcd.Health, error) {
	list := []etcd.Health{
		{Member: etcd.Member{ID: 1, Name: "cp-1", PeerURL: ownPeer}, Answers: v.leaderless || v.own == nil, Err: v.own},
		{Member: etcd.Member{ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}, Answers: v.cp2 == nil, Err: v.cp2},
		{Member: etcd.Member{ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"}, Answers: v.cp3 == nil, Err: v.cp3},
	}
	if v.leaderless {
		list[0].Status = etcd.Status{Version: "3.7.0"}
	}
	return list, v.fail["health"]
}

// takesAPIServerAlong: the API server goes down before etcd and comes back with it, whatever has changed. Its static Pod isn't
// written.
func (r etcdRestart) takesAPIServerAlong(t *testing.T) {
	s := onlyEtcdStale(t, r.init())
	fatal(t, r.run(t, s))
	if got := strings.Join(s.host.Did("stop container"), " "); got != "kube-apiserver etcd" {
		t.Errorf("stopped %q", got)
	}
	if slices.Contains(s.host.Did("write"), "kube-apiserver.yaml") {
		t.Error("the API server's static Pod was written")
	}
	if r.name == "renewal" {
		return
	}
	// The old kubelet would start the API server before etcd has stopped.
	orders := slices.DeleteFunc(s.host.Orders(), func(o string) bool { return strings.HasPrefix(o, "remove exited ") })
	want := []string{"kill kubelet.service", "stop container kube-apiserver", "stop container etcd", "restart kubelet.service"}
	if len(orders) < len(want) || !slices.Equal(orders[:len(want)], want) {
		t.Errorf("did %q, want %q", orders, want)
	}
}

// awaitsAPIServer: an API server that went down with etcd and doesn't come back is a failure of the run.
func (r etcdRestart) awaitsAPIServer(t *testing.T) {
	s := onlyEtcdStale(t, r.init())
	s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.ControlPlaneComponentHealthCheck = 100*time.Millisecond, 100*time.Millisecond
	s.host.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		if id == manifests.EtcdName {
			s.host.Runs(time.Now().Add(2*time.Hour), id)
		} else {
			delete(s.host.Has.Running, id)
		}
		return nil
	}
	fact.Error(t, r.run(t, s), manifests.APIServerName)
}

// sparesEtcd: no workflow stops a member of etcd that the others need, and a member that works for nobody may always be
// restarted. The Lease is free afterwards, because nothing was stopped.
func (r etcdRestart) sparesEtcd(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		etcd    voters
		stopped bool // etcd's container, before the run
		ignore  string
		stops   bool
	}{
		"all work":                            {voters{}, false, "", true},
		"another is down":                     {voters{cp3: down}, false, "", false},
		"another is down, and that's ignored": {voters{cp3: down}, false, "etcdquorum", true},
		"another is down, and all's ignored":  {voters{cp3: down}, false, "all", false},
		"nobody can be asked":                 {voters{members: members{fail: map[string]error{"health": down}}}, false, "", false},
		"this one does not run":               {voters{own: down, cp3: down}, true, "", true},
		"this one does not answer":            {voters{own: down, cp3: down}, false, "", false},
		"this one has no leader":              {voters{own: down, cp2: down, cp3: down, leaderless: true}, false, "", true},
	} {
		t.Run(name+", "+r.name, func(t *testing.T) {
			if row.stopped && r.name == "renewal" {
				t.Skip("the kubelet starts it, and nothing is to be restarted")
			}
			s := onlyEtcdStale(t, r.init())
			s.Config.Timeouts.UpgradeManifests = 5 * time.Second
			known := row.etcd
			s.Etcd = &known
			if row.ignore != "" {
				s.Config.IgnorePreflightErrors = []string{row.ignore}
			}
			if row.stopped {
				delete(s.host.Has.Running, manifests.EtcdName)
				s.host.On.RestartUnit = func(context.Context, string) error {
					s.host.Runs(time.Now().Add(2*time.Hour), manifests.EtcdName)
					return nil
				}
			}
			err := r.run(t, s)
			if stopped := slices.Contains(s.host.Did("stop container"), manifests.APIServerName); stopped != row.stops {
				t.Errorf("stopped %q: %v", s.host.Did("stop container"), err)
			}
			if row.stops {
				fatal(t, err)
			} else if !r.refuses(err) {
				t.Errorf("error %v", err)
			}
			if holder := s.holder(t); holder != "" {
				t.Errorf("%s keeps the Lease", holder)
			}
		})
	}
}
