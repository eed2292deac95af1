// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
)

// api is a cluster whose API may be away, with the Nodes and the kubelet of the tests.
type turnsAPI struct {
	cluster.Cluster
	away  func() bool
	nodes []corev1.Node
	// pods are those of the kubelet, each time that it is asked.
	pods func() []corev1.Pod
}

func (a turnsAPI) Ready(context.Context) error {
	if a.away != nil && a.away() {
		return errors.New("connection refused")
	}
	return nil
}

func (a turnsAPI) Nodes(context.Context) ([]corev1.Node, error) { return a.nodes, nil }

func (a turnsAPI) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	object := cluster.NewNode(name)
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for {
		err := check(object, nil)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a turnsAPI) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	if q.Path != "/api/v1/nodes/cp-1/proxy/pods" {
		return errors.New(q.Path)
	}
	data, err := json.Marshal(corev1.PodList{Items: a.pods()})
	if err != nil {
		return err
	}
	return take(strings.NewReader(string(data)))
}

// purposeNow is what the Lease says that its holder does.
func (s *stage) purposeNow(t *testing.T) string {
	t.Helper()
	lease := turnLease()
	_, err := s.api.Get(t.Context(), lease)
	fatal(t, err)
	return lease.Annotations["slipway/purpose"]
}

// TestRenewInTurn: a renewal takes the Lease if it has something to restart, and gives it back unless it was there before for an
// upgrade. A run that does not get it fails, and says what to do; the certificates are renewed.
func TestRenewInTurn(t *testing.T) {
	for name, row := range map[string]struct {
		holder string // of the Lease before
		what   string // of that holder
		sick   bool   // no component comes up
		stops  string
		says   []string
		left   string // the holder afterwards, and what it does
	}{
		"free":                         {stops: "kube-scheduler"},
		"another is upgraded":          {holder: "cp-2", what: "upgrade", says: []string{"control plane cp-2"}, left: "cp-2 upgrade"},
		"its own unfinished upgrade":   {holder: "cp-1", what: "upgrade", stops: "kube-scheduler", left: "cp-1 upgrade"},
		"its own interrupted renewal":  {holder: "cp-1", what: "renewal", stops: "kube-scheduler"},
		"its own interrupted prepare":  {holder: "cp-1", what: "preparation", stops: "kube-scheduler"},
		"it does not come up":          {sick: true, stops: "kube-scheduler", says: []string{manifests.SchedulerName}, left: "cp-1 renewal"},
		"a holder that is gone":        {holder: "cp-9", what: "upgrade", stops: "kube-scheduler"},
		"another renews, and is stuck": {holder: "cp-2", what: "renewal", says: []string{"control plane cp-2"}, left: "cp-2 renewal"},
	} {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t, Init())
			s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.host.Runs(time.Time{}, manifests.SchedulerName)
			secondControlPlane(t, s)
			if row.holder != "" {
				s.holdsFor(t, row.holder, row.what, time.Hour)
			}
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.ControlPlaneComponentHealthCheck = 50*time.Millisecond, 50*time.Millisecond
			if row.sick {
				s.host.On.Probe = func(_ context.Context, p host.Probe) error {
					if strings.Contains(p.URL, ":10259") {
						return errors.New("connection refused")
					}
					return nil
				}
			}
			before := s.get(t, "/etc/kubernetes/scheduler.conf")
			err := Run(t.Context(), s.Env, Renew(RenewOptions{Name: "scheduler.conf", Restart: true}), Options{})
			fact.Error(t, err, row.says...)
			if held := (*heldError)(nil); row.holder == "cp-2" && !errors.As(err, &held) {
				t.Errorf("error %v", err)
			}
			if s.get(t, "/etc/kubernetes/scheduler.conf") == before {
				t.Error("the certificate was not renewed")
			}
			if got := strings.Join(s.host.Did("stop container"), " "); got != row.stops {
				t.Errorf("stopped %q, want %q", got, row.stops)
			}
			if left := strings.TrimSpace(s.holder(t) + " " + s.purposeNow(t)); left != row.left {
				t.Errorf("the Lease says %q, want %q", left, row.left)
			}
		})
	}
}

// TestNoTurnForNothing: a renewal that has nothing to restart, as on most days, asks nothing of the API.
func TestNoTurnForNothing(t *testing.T) {
	s := onlyEtcdStale(t, Init())
	s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
	s.done = nil
	s.play(t, Renew(RenewOptions{Within: time.Hour, Restart: true})...)
	if len(s.done) > 0 || len(s.host.Did("stop container")) > 0 {
		t.Errorf("asked for %q, did %q", s.done, s.host.Orders())
	}
}

// turnOfInterruptedRun: the Lease of a run that was killed after its last restart goes back with the next run, which has nothing
// to restart. Nobody else's does.
func turnOfInterruptedRun(t *testing.T, init []Phase, own string, run func(*stage) error) {
	for purpose, left := range map[string]string{"upgrade": "cp-1", "rollback": "cp-1", own: ""} {
		t.Run(own+" after "+purpose, func(t *testing.T) {
			s := onlyEtcdStale(t, init)
			s.host.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.host.Has.Units[theKubelet] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			s.holdsFor(t, "cp-1", purpose, 0)
			fatal(t, run(s))
			if holder := s.holder(t); holder != left || len(s.host.Did("stop container")) > 0 {
				t.Errorf("the Lease has %q; did %q", holder, s.host.Orders())
			}
		})
	}
}

func TestTurnOfInterruptedRenewal(t *testing.T) {
	turnOfInterruptedRun(t, Init(), string(forRenewal), func(s *stage) error { return restartChanged(t.Context(), s.Env) })
}

func TestTurnOfInterruptedPreparation(t *testing.T) {
	turnOfInterruptedRun(t, Init(), string(forPreparation), func(s *stage) error {
		return (&Prepare{ControlPlane: s.Config}).restartReplaced(t.Context(), s.Env, false)
	})
}

// TestRenewWithoutAPI: certificates are renewed when they have expired, and then the API may not answer. An API server that nobody
// can use goes first, and then the Lease can be taken. Without other members of etcd that work, nobody needs it.
func TestRenewWithoutAPI(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		etcd  voters
		alone bool
		comes bool // the API server answers after a restart
		works bool // it is healthy, and only this host has no credentials for it
		stops string
		held  bool // the Lease, when etcd stops
		fails bool
	}{
		"alone":                              {alone: true, comes: true, stops: "kube-apiserver etcd"},
		"three":                              {comes: true, stops: "kube-apiserver kube-apiserver etcd", held: true},
		"three, and it does not come up":     {stops: "kube-apiserver", fails: true},
		"three, and no admin.conf":           {works: true, stops: "kube-apiserver etcd"},
		"three, and none of them has a lead": {etcd: voters{own: down, cp2: down, cp3: down, leaderless: true}, comes: true, stops: "kube-apiserver etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t, Init())
			s.host.Runs(time.Time{}, manifests.APIServerName)
			if known := row.etcd; !row.alone {
				s.Etcd = &known
			}
			s.Config.Timeouts.ControlPlaneComponentHealthCheck = 50 * time.Millisecond
			away, held := true, false
			s.Cluster = turnsAPI{Cluster: s.api, away: func() bool { return away }}
			s.host.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				if id == manifests.EtcdName {
					held = s.holder(t) == "cp-1"
				} else {
					away = !row.comes
				}
				s.host.Runs(time.Now().Add(2*time.Hour), id)
				return nil
			}
			s.host.On.Probe = func(_ context.Context, p host.Probe) error {
				if strings.Contains(p.URL, ":6443") && away && !row.works {
					return down
				}
				return nil
			}
			err := Run(t.Context(), s.Env, Renew(RenewOptions{Name: "etcd-server", Restart: true}), Options{})
			if (err != nil) != row.fails {
				t.Errorf("error %v", err)
			}
			stopped := slices.DeleteFunc(s.host.Did("stop container"), func(id string) bool {
				return id != manifests.EtcdName && id != manifests.APIServerName
			})
			if got := strings.Join(stopped, " "); got != row.stops || held != row.held {
				t.Errorf("stopped %q, want %q; the Lease was held: %t", got, row.stops, held)
			}
			if holder := s.holder(t); holder != "" {
				t.Errorf("%s keeps the Lease", holder)
			}
		})
	}
}

// controlPlaneNode is the Node of a control plane.
func controlPlaneNode(name string, ready corev1.ConditionStatus) corev1.Node {
	object := cluster.NewNode(name)
	object.Labels = map[string]string{cluster.LabelControlPlane: ""}
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return *object
}

// TestPrepareInTurn: the kubelet of a control plane is replaced while no other control plane restarts, and if the others can do
// without this one: a kubelet of another minor version may replace the static Pods. Any other host has no Lease.
func TestPrepareInTurn(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		worker bool
		holder string
		etcd   voters
		ready  corev1.ConditionStatus // of cp-2
		ignore []string
		away   bool
		says   []string // by the error; none for a success
	}{
		"in turn":                                    {ready: corev1.ConditionTrue},
		"a worker, or a host without cluster":        {worker: true, holder: "cp-2", ready: corev1.ConditionFalse},
		"another is upgraded":                        {holder: "cp-2", ready: corev1.ConditionTrue, says: []string{"control plane cp-2"}},
		"another member is down":                     {etcd: voters{cp3: down}, ready: corev1.ConditionTrue, says: []string{"cp-3 does not"}},
		"another is not Ready":                       {ready: corev1.ConditionFalse, says: []string{"node cp-2"}},
		"another is not Ready, ignored":              {ready: corev1.ConditionFalse, ignore: []string{"controlplanenodesready"}},
		"no API":                                     {away: true, ready: corev1.ConditionFalse},
		"no API, and another member of etcd is down": {away: true, etcd: voters{cp3: down}, says: []string{"cp-3 does not"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := onlyEtcdStale(t, Init())
			secondControlPlane(t, s)
			known := row.etcd
			s.Etcd = &known
			s.Cluster = turnsAPI{
				Cluster: s.api, away: func() bool { return row.away }, nodes: []corev1.Node{controlPlaneNode("cp-2", row.ready)},
				pods: func() []corev1.Pod { return kubeletPods("new") },
			}
			s.host.Has.Sandboxes = sandboxes("new")
			if row.holder != "" {
				s.holds(t, row.holder, time.Hour)
			}
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.KubeletHealthCheck = 50*time.Millisecond, 50*time.Millisecond
			s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			p := &Prepare{ControlPlane: s.Config}
			if row.worker {
				p.ControlPlane = nil
			}
			there := *s.Env
			there.Config = config.APINode("", nil)
			there.Config.IgnorePreflightErrors = row.ignore
			fact.Error(t, p.restartReplaced(t.Context(), &there, true), row.says...)
			if restarted := slices.Contains(s.host.Orders(), "restart kubelet.service"); restarted != (row.says == nil) {
				t.Errorf("did %q", s.host.Orders())
			}
			if holder := s.holder(t); holder != row.holder {
				t.Errorf("the Lease has %q", holder)
			}
		})
	}
}

// kubeletPods are the static Pods that a kubelet knows, and sandboxes those that run.
func kubeletPods(uid string) []corev1.Pod {
	var pods []corev1.Pod
	for _, s := range sandboxes(uid) {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Pod, Namespace: s.Namespace, UID: types.UID(s.UID)}})
	}
	return pods
}

func sandboxes(uid string) []host.Sandbox {
	var list []host.Sandbox
	for _, name := range []string{manifests.EtcdName, manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		list = append(list, host.Sandbox{Pod: name + "-cp-1", Namespace: metav1.NamespaceSystem, UID: uid + "-" + name, Ready: true})
	}
	return list
}

// TestPrepareAwaitsStaticPods: the Lease stays until the kubelet has replaced the static Pods that it takes for new ones.
func TestPrepareAwaitsStaticPods(t *testing.T) {
	s := onlyEtcdStale(t, Init())
	known := voters{}
	s.Etcd = &known
	asked := 0
	s.host.Has.Sandboxes = sandboxes("old")
	s.Cluster = turnsAPI{Cluster: s.api, nodes: []corev1.Node{controlPlaneNode("cp-1", corev1.ConditionFalse)}, pods: func() []corev1.Pod {
		if holder, what := s.holder(t), s.purposeNow(t); holder != "cp-1" || what != string(forPreparation) {
			t.Errorf("the Lease has %q for %q", holder, what)
		}
		switch asked++; asked {
		case 2: // the old one ends
			s.host.Has.Sandboxes = sandboxes("old")[1:]
		case 3: // the new one starts
			s.host.Has.Sandboxes = append(sandboxes("new")[:1], sandboxes("old")[1:]...)
		case 4:
			s.host.Has.Sandboxes = sandboxes("new")
		}
		return kubeletPods("new")
	}}
	s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	fatal(t, (&Prepare{ControlPlane: s.Config}).restartReplaced(t.Context(), s.Env, true))
	if asked != 4 || s.holder(t) != "" {
		t.Errorf("it asked the kubelet %d times; the Lease has %q", asked, s.holder(t))
	}
}
