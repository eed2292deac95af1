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
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
)

// patched is etcd with another flag.
func (s *stage) patched(t *testing.T) componentUpgrade {
	t.Helper()
	before := s.get(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName))
	after := strings.Replace(before, "    - --name=", "    - --log-level=warn\n    - --name=", 1)
	if after == before {
		t.Fatalf("no --name in\n%s", before)
	}
	return componentUpgrade{name: manifests.EtcdName, before: []byte(before), wanted: []byte(after)}
}

// workflows restart this control plane's etcd and nothing else.
var workflows = map[string]func(*testing.T, *stage) error{
	"upgrade": func(t *testing.T, s *stage) error {
		mine, err := takeTurn(t.Context(), s.Env, forUpgrade)
		fatal(t, err)
		return mine.finish(t.Context(), s.Env, mine.replaceComponents(t.Context(), s.Env, []componentUpgrade{s.patched(t)}))
	},
	"rollback": func(t *testing.T, s *stage) error {
		r := &Rollback{RollbackOptions: RollbackOptions{Backup: &upgrading.Backup{}}, before: map[string][]byte{manifests.EtcdName: s.patched(t).wanted}}
		return r.putBackControlPlane(t.Context(), s.Env)
	},
	"renewal": func(t *testing.T, s *stage) error {
		return Run(t.Context(), s.Env, Renew(RenewOptions{Name: "etcd-server", Restart: true}), Options{})
	},
	"put back": func(t *testing.T, s *stage) error {
		c := s.patched(t)
		s.put(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName), string(c.wanted))
		err := turn{}.putBack(t.Context(), s.Env, []componentUpgrade{c}, []bool{false}, errors.New("it failed"))
		if errors.As(err, new(*restoredError)) {
			return nil
		}
		return err
	},
}

// onlyEtcdStale is a control plane of which only etcd's files change: the other containers are newer than all of them.
func onlyEtcdStale(t *testing.T) *stage {
	t.Helper()
	s := restartStage(t)
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

// TestEtcdTakesAPIServerAlong: whatever has changed, and in every workflow, the API server goes down before etcd and comes back
// with it. Its static Pod isn't written.
func TestEtcdTakesAPIServerAlong(t *testing.T) {
	for name, run := range workflows {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t)
			fatal(t, run(t, s))
			if got := strings.Join(s.host.Did("stop container"), " "); got != "kube-apiserver etcd" {
				t.Errorf("stopped %q", got)
			}
			if slices.Contains(s.host.Did("write"), "kube-apiserver.yaml") {
				t.Error("the API server's static Pod was written")
			}
			if name == "renewal" {
				return
			}
			// The old kubelet would start the API server before etcd has stopped.
			orders := slices.DeleteFunc(s.host.Orders(), func(o string) bool { return strings.HasPrefix(o, "remove exited ") })
			want := []string{"kill kubelet.service", "stop container kube-apiserver", "stop container etcd", "restart kubelet.service"}
			if len(orders) < len(want) || !slices.Equal(orders[:len(want)], want) {
				t.Errorf("did %q, want %q", orders, want)
			}
		})
	}
}

// TestAPIServerIsAwaited: an API server that went down with etcd and does not come back is a failure of the run.
func TestAPIServerIsAwaited(t *testing.T) {
	for name, run := range workflows {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t)
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.ControlPlaneComponentHealthCheck = 100*time.Millisecond, 100*time.Millisecond
			s.host.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				if id == manifests.EtcdName {
					s.host.Runs(time.Now().Add(2*time.Hour), id)
				} else {
					delete(s.host.Has.Running, id)
				}
				return nil
			}
			fact.Error(t, run(t, s), manifests.APIServerName)
		})
	}
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

// TestEtcdIsSpared: no workflow stops a member of etcd that the others need, and one that works for nobody may always be
// restarted. The Lease is free afterwards, because nothing was stopped.
func TestEtcdIsSpared(t *testing.T) {
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
		for workflow, run := range workflows {
			t.Run(name+", "+workflow, func(t *testing.T) {
				if row.stopped && workflow == "renewal" {
					t.Skip("the kubelet starts it, and nothing is to be restarted")
				}
				s := onlyEtcdStale(t)
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
				err := run(t, s)
				if stopped := slices.Contains(s.host.Did("stop container"), manifests.APIServerName); stopped != row.stops {
					t.Errorf("stopped %q: %v", s.host.Did("stop container"), err)
				}
				if row.stops {
					fatal(t, err)
				} else if needed := (*quorumError)(nil); !errors.As(err, &needed) && workflow != "put back" {
					t.Errorf("error %v", err)
				}
				if holder := s.holder(t); holder != "" {
					t.Errorf("%s keeps the Lease", holder)
				}
			})
		}
	}
}

// TestRollbackPutsBack: a component that does not come up with its previous manifest is replaced by what ran before the
// rollback, if that worked. If it did not, it is what the user wants to leave.
func TestRollbackPutsBack(t *testing.T) {
	const now, before = "r/kube-apiserver:v1.37.2", "r/kube-apiserver:v1.36.4"
	for name, row := range map[string]struct {
		broken []string // images that do not start
		runs   string   // afterwards
		back   bool
	}{
		"the newer one worked":  {[]string{before}, now, true},
		"neither of them works": {[]string{before, now}, before, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := restartStage(t)
			s.Etcd = loneMember{}
			s.Config.Timeouts.UpgradeManifests = time.Second
			path := thisnode.StaticPodPath(s.Config, manifests.APIServerName)
			with := func(image string) string {
				made := s.get(t, path)
				return strings.Replace(made, imageOf([]byte(made)), image, 1)
			}
			previous := []byte(with(before))
			s.put(t, path, with(now))
			s.runsPods(row.broken, nil)
			s.host.On.Probe = func(_ context.Context, p host.Probe) error {
				if strings.Contains(p.URL, ":6443") && slices.Contains(row.broken, s.image(manifests.APIServerName)) {
					return errors.New("connection refused")
				}
				return nil
			}
			c := componentUpgrade{name: manifests.APIServerName, before: []byte(s.get(t, path)), wanted: previous}
			err := (&Rollback{}).swap(t.Context(), s.Env, turn{}, []componentUpgrade{c})
			restored := (*restoredError)(nil)
			fact.Error(t, err, manifests.APIServerName)
			if got := s.image(manifests.APIServerName); got != row.runs || errors.As(err, &restored) != row.back {
				t.Errorf("%s runs: %v", got, err)
			}
		})
	}
}
