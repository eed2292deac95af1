// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
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
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestTurnOfInterruptedPreparation(t *testing.T) {
	phasetest.TurnOfInterruptedRun(t, bootstrap.Init(), string(node.ForPreparation), func(s *phasetest.Stage) error {
		runs(s, "new")
		return (&Prepare{ControlPlane: s.Config}).restartReplaced(t.Context(), s.ForMachine(&s.Config.Machine), false)
	})
}

// runs makes this node Ready, with Pods of these UIDs; the kubelet's static Pods have new ones.
func runs(s *phasetest.Stage, uid string) {
	s.FakeHost.Has.Sandboxes = sandboxes(uid)
	s.Cluster = phasetest.TurnsAPI{
		Cluster: s.API, Known: []corev1.Node{controlPlaneNode("cp-1", corev1.ConditionTrue)}, KubeletPods: func() []corev1.Pod { return kubeletPods("new") },
	}
}

// TestInterruptedPreparationWaits: a run after one that gave up waiting for the static Pods waits for them, too.
func TestInterruptedPreparationWaits(t *testing.T) {
	s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
	runs(s, "old")
	s.HoldsFor(t, "cp-1", string(node.ForPreparation), 0)
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	s.Config.Timeouts.UpgradeManifests = 50 * time.Millisecond
	err := (&Prepare{ControlPlane: s.Config}).restartReplaced(t.Context(), s.ForMachine(&s.Config.Machine), false)
	fact.Error(t, err, "Pod etcd-cp-1")
	if holder := s.Holder(t); holder != "cp-1" {
		t.Errorf("the Lease has %q", holder)
	}
}

func controlPlaneNode(name string, ready corev1.ConditionStatus) corev1.Node {
	object := cluster.NewNode(name)
	object.Labels = map[string]string{cluster.LabelControlPlane: ""}
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return *object
}

// TestPrepareInTurn: a control plane's kubelet is replaced while no other control plane restarts, and if the others can do
// without this one: a kubelet of another minor version may replace the static Pods. Other hosts have no Lease.
func TestPrepareInTurn(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		worker bool
		holder string
		etcd   phasetest.Voters
		ready  corev1.ConditionStatus // of cp-2
		ignore []string
		away   bool
		says   []string // in the error; none for success
	}{
		"in turn":                                    {ready: corev1.ConditionTrue},
		"a worker, or a host without cluster":        {worker: true, holder: "cp-2", ready: corev1.ConditionFalse},
		"another is upgraded":                        {holder: "cp-2", ready: corev1.ConditionTrue, says: []string{"control plane cp-2"}},
		"another member is down":                     {etcd: phasetest.Voters{Cp3: down}, ready: corev1.ConditionTrue, says: []string{"cp-3 does not"}},
		"another is not Ready":                       {ready: corev1.ConditionFalse, says: []string{"node cp-2"}},
		"another is not Ready, ignored":              {ready: corev1.ConditionFalse, ignore: []string{"controlplanenodesready"}},
		"no API":                                     {away: true, ready: corev1.ConditionFalse},
		"no API, and another member of etcd is down": {away: true, etcd: phasetest.Voters{Cp3: down}, says: []string{"cp-3 does not"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
			phasetest.SecondControlPlane(t, s)
			known := row.etcd
			s.Etcd = &known
			s.Cluster = phasetest.TurnsAPI{
				Cluster: s.API, Away: func() bool { return row.away }, Known: []corev1.Node{controlPlaneNode("cp-2", row.ready)},
				KubeletPods: func() []corev1.Pod { return kubeletPods("new") },
			}
			s.FakeHost.Has.Sandboxes = sandboxes("new")
			if row.holder != "" {
				s.Holds(t, row.holder, time.Hour)
			}
			s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.KubeletHealthCheck = 50*time.Millisecond, 50*time.Millisecond
			s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			p := &Prepare{ControlPlane: s.Config}
			if row.worker {
				p.ControlPlane = nil
			}
			bare := config.DefaultMachine()
			bare.IgnorePreflightErrors = row.ignore
			fact.Error(t, p.restartReplaced(t.Context(), s.ForMachine(bare), true), row.says...)
			if restarted := slices.Contains(s.FakeHost.Orders(), "restart kubelet.service"); restarted != (row.says == nil) {
				t.Errorf("did %q", s.FakeHost.Orders())
			}
			if holder := s.Holder(t); holder != row.holder {
				t.Errorf("the Lease has %q", holder)
			}
		})
	}
}

// kubeletPods are the static Pods a kubelet knows, and sandboxes the running Pods.
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

// TestPrepareAwaitsStaticPods: the Lease stays until the kubelet has replaced the static Pods it takes for new.
func TestPrepareAwaitsStaticPods(t *testing.T) {
	s := phasetest.OnlyEtcdStale(t, bootstrap.Init())
	known := phasetest.Voters{}
	s.Etcd = &known
	asked := 0
	s.FakeHost.Has.Sandboxes = sandboxes("old")
	s.Cluster = phasetest.TurnsAPI{Cluster: s.API, Known: []corev1.Node{controlPlaneNode("cp-1", corev1.ConditionFalse)}, KubeletPods: func() []corev1.Pod {
		if holder, what := s.Holder(t), s.PurposeNow(t); holder != "cp-1" || what != string(node.ForPreparation) {
			t.Errorf("the Lease has %q for %q", holder, what)
		}
		switch asked++; asked {
		case 2: // the old one ends
			s.FakeHost.Has.Sandboxes = sandboxes("old")[1:]
		case 3: // the new one starts
			s.FakeHost.Has.Sandboxes = append(sandboxes("new")[:1], sandboxes("old")[1:]...)
		case 4:
			s.FakeHost.Has.Sandboxes = sandboxes("new")
		}
		return kubeletPods("new")
	}}
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	phasetest.Fatal(t, (&Prepare{ControlPlane: s.Config}).restartReplaced(t.Context(), s.ForMachine(&s.Config.Machine), true))
	if asked != 4 || s.Holder(t) != "" {
		t.Errorf("it asked the kubelet %d times; the Lease has %q", asked, s.Holder(t))
	}
}
