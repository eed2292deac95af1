// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// drained is the API of a node to be drained.
type drained struct {
	*cluster.Plan
	pods []corev1.Pod
	// blocked has the reason why a Pod isn't evicted, by name. Each attempt asks again.
	blocked map[string]func() string
	stuck   []string
	before  func(d *drained)
	// silent is the first eviction that the API doesn't answer; 0 for none.
	silent int
	asked  []string // evictions
}

func (d *drained) PodsOn(context.Context, string) ([]corev1.Pod, error) {
	if d.before != nil {
		d.before(d)
	}
	return slices.Clone(d.pods), nil
}

func (d *drained) Evict(ctx context.Context, pod *corev1.Pod) error {
	d.asked = append(d.asked, pod.Name)
	if d.silent > 0 && len(d.asked) >= d.silent {
		<-ctx.Done()
		return errors.WithMessage(ctx.Err(), "evict "+podName(pod))
	}
	if why := d.blocked[pod.Name]; why != nil {
		if reason := why(); reason != "" {
			return &cluster.BlockedError{Pod: podName(pod), Reason: reason}
		}
	}
	i := slices.IndexFunc(d.pods, func(p corev1.Pod) bool { return p.UID == pod.UID })
	if slices.Contains(d.stuck, pod.Name) {
		d.pods[i].DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(0, 0)))
		return nil
	}
	d.pods = slices.Delete(d.pods, i, i+1)
	return nil
}

func withEmptyDir(p corev1.Pod) corev1.Pod {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	return p
}

func finished(p corev1.Pod) corev1.Pod {
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func static(p corev1.Pod) corev1.Pod {
	p.Annotations[corev1.MirrorPodAnnotationKey] = "x"
	return p
}

type drainStage struct {
	*phasetest.Stage
	api *drained
}

func newDrainStage(t *testing.T, pods ...corev1.Pod) *drainStage {
	t.Helper()
	s := &drainStage{Stage: phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)}
	s.Config.Upgrade = &config.Upgrade{Version: "v1.37.2", Drain: &config.Drain{Timeout: time.Minute}}
	s.api = &drained{Plan: s.API, pods: pods, blocked: map[string]func() string{}}
	s.Cluster = s.api
	phasetest.Fatal(t, s.api.Ensure(t.Context(), cluster.NewNode(s.Config.Name)))
	s.Done = nil
	return s
}

func (s *drainStage) node(t *testing.T) *corev1.Node {
	t.Helper()
	n := cluster.NewNode(s.Config.Name)
	_, err := s.api.Get(t.Context(), n)
	phasetest.Fatal(t, err)
	return n
}

func (s *drainStage) checkCordoned(t *testing.T, cordoned, ours bool) {
	t.Helper()
	n := s.node(t)
	if _, marked := n.Annotations[cordonedHere]; n.Spec.Unschedulable != cordoned || marked != ours {
		t.Errorf("unschedulable: %v, marked: %v; want %v, %v", n.Spec.Unschedulable, marked, cordoned, ours)
	}
}

func drain() step.Phase { return phasetest.Pick(Node(), "drain")[0] }

func uncordon() step.Phase { return phasetest.Pick(Node(), "uncordon")[0] }

func (s *drainStage) drain(t *testing.T) error {
	t.Helper()
	return step.Run(t.Context(), s.Env, []step.Phase{drain()}, step.Options{})
}

// TestDrainPods: which Pods are evicted, and which stop the drain. test/drain compares the choice with kubectl's.
func TestDrainPods(t *testing.T) {
	const uncontrolled, data = "no controller", "emptyDir"
	for name, c := range map[string]struct {
		pod    corev1.Pod
		force  bool
		evicts bool
		loses  []string // all reasons
	}{
		"of a ReplicaSet":          {pod: phasetest.PodOf("a", "ReplicaSet"), evicts: true},
		"of a DaemonSet":           {pod: phasetest.PodOf("a", "DaemonSet")},
		"of a DaemonSet, ended":    {pod: finished(phasetest.PodOf("a", "DaemonSet")), evicts: true},
		"static":                   {pod: static(phasetest.PodOf("a", "Node"))},
		"static, with an emptyDir": {pod: static(withEmptyDir(phasetest.PodOf("a", "Node")))},
		"without a controller":     {pod: phasetest.PodOf("a", ""), loses: []string{uncontrolled}},
		"ended":                    {pod: finished(withEmptyDir(phasetest.PodOf("a", ""))), evicts: true},
		"emptyDir":                 {pod: withEmptyDir(phasetest.PodOf("a", "ReplicaSet")), loses: []string{data}},
		"both":                     {pod: withEmptyDir(phasetest.PodOf("a", "")), loses: []string{uncontrolled, data}},
		"both, forced":             {pod: withEmptyDir(phasetest.PodOf("a", "")), force: true, evicts: true},
		"a DaemonSet's, forced":    {pod: phasetest.PodOf("a", "DaemonSet"), force: true},
		"a DaemonSet's emptyDir":   {pod: withEmptyDir(phasetest.PodOf("a", "DaemonSet"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDrainStage(t, c.pod)
			s.Config.Upgrade.Drain.Force = c.force
			err := s.drain(t)
			if c.loses != nil {
				fact.Error(t, err, append([]string{"node " + s.Config.Name, ": ns/a ("}, c.loses...)...)
				for _, reason := range []string{uncontrolled, data} {
					if !slices.Contains(c.loses, reason) {
						fact.NotIn(t, phasetest.Message(err), reason)
					}
				}
				fact.In(t, fault.Remedy(err), "--drain-force")
				s.checkCordoned(t, false, false)
				return
			}
			phasetest.Fatal(t, err)
			if evicted := len(s.api.asked) > 0; evicted != c.evicts {
				t.Errorf("evicted: %q", s.api.asked)
			}
			s.checkCordoned(t, true, true)
		})
	}
}

// TestDrainWaitsForBudgets: an eviction refused by a disruption budget is retried, and reported once.
func TestDrainWaitsForBudgets(t *testing.T) {
	s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"), phasetest.PodOf("b", "ReplicaSet"))
	tries := 0
	s.api.blocked["a"] = func() string {
		if tries++; tries > 3 {
			return ""
		}
		return "budget web needs 2"
	}
	phasetest.Fatal(t, s.drain(t))
	if len(s.api.pods) > 0 || tries != 4 {
		t.Errorf("left: %q after %d tries", podNames(s.api.pods), tries)
	}
	s.SaidOnce(t, phasetest.Line{"Evicting ns/a, ns/b\n"}, phasetest.Line{"Waiting", "ns/a: budget web"})
}

// TestDrainDeadline: the error names the remaining Pods and the budgets in the way. Afterwards, the same command finishes.
func TestDrainDeadline(t *testing.T) {
	s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"), phasetest.PodOf("b", "ReplicaSet"), phasetest.PodOf("c", "ReplicaSet"))
	s.Config.Upgrade.Drain.Timeout = 30 * time.Second
	s.api.blocked["a"] = func() string { return "budget web needs 2" }
	s.api.stuck = []string{"b"}
	var err error
	synctest.Test(t, func(t *testing.T) { err = s.drain(t) })
	fact.Error(t, err, "30s", ": ns/a (budget web", "); ns/b (", "terminating", "1970-01-01T00:00:00Z)")
	fact.In(t, fault.Remedy(err), "--drain-timeout")
	s.checkCordoned(t, true, true)
	s.api.blocked, s.api.pods = nil, s.api.pods[:1]
	s.Config.Upgrade.Drain.Timeout = time.Minute
	phasetest.Fatal(t, s.drain(t))
	s.Play(t, uncordon())
	s.checkCordoned(t, false, false)
}

// TestDrainUnanswered: without answers until the deadline, the error names the remaining Pods, and the budgets seen before.
func TestDrainUnanswered(t *testing.T) {
	for silent, want := range map[int]string{
		1: "ns/a (evict ns/a: context deadline exceeded); ns/b (evict ns/b: context deadline exceeded)",
		2: "ns/a (budget web needs 2); ns/b (evict ns/b: context deadline exceeded)",
		3: "ns/a (budget web needs 2); ns/b (budget web needs 2)",
		4: "ns/a (budget web needs 2); ns/b (budget web needs 2)",
	} {
		s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"), phasetest.PodOf("b", "ReplicaSet"))
		s.Config.Upgrade.Drain.Timeout = 30 * time.Second
		s.api.blocked["a"] = func() string { return "budget web needs 2" }
		s.api.blocked["b"] = s.api.blocked["a"]
		s.api.silent = silent
		var err error
		synctest.Test(t, func(t *testing.T) { err = s.drain(t) })
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) { // in the words of the API
			t.Errorf("silent from eviction %d: got %v", silent, err)
		}
		fact.Error(t, err, "30s")
		fact.In(t, fault.Remedy(err), "--drain-timeout")
		s.checkCordoned(t, true, true)
	}
}

// TestDrainEndsAtOnce: a permanent refusal by the API isn't retried.
func TestDrainEndsAtOnce(t *testing.T) {
	s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"))
	refused := errors.New("not allowed")
	s.Cluster = refusing{s.api, refused}
	if err := s.drain(t); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

type refusing struct {
	*drained
	err error
}

func (r refusing) Evict(context.Context, *corev1.Pod) error { return r.err }

// TestDrainSeesPodsThatCameLate: a Pod bound to the node just before it's cordoned is evicted as well, or refused.
func TestDrainSeesPodsThatCameLate(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", ""} {
		s := newDrainStage(t)
		lists := 0
		s.api.before = func(d *drained) {
			if lists++; lists == 2 {
				d.pods = append(d.pods, phasetest.PodOf("late", kind))
			}
		}
		err := s.drain(t)
		if kind == "" {
			if err == nil || !strings.Contains(err.Error(), "ns/late (no controller") {
				t.Errorf("got %v", err)
			}
			fact.In(t, fault.Remedy(err), "`slipway upgrade node phase uncordon`")
			continue
		}
		phasetest.Fatal(t, err)
		if diff := cmp.Diff([]string{"late"}, s.api.asked); diff != "" {
			t.Error(diff)
		}
	}
}

// TestCordon: only a node that a run has cordoned for this upgrade is uncordoned, even by a later run. An annotation that is left over
// from another time neither uncordons the node nor stays on a schedulable one.
func TestCordon(t *testing.T) {
	cordoned := func(version, manager string) corev1.Node {
		return corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}, ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{cordonedHere: version},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubelet", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:podCIDR":{}}}`)}},
				{Manager: manager, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:unschedulable":{}}}`)}},
			}}}
	}
	stays := phasetest.Line{"was cordoned", "stays"}
	for name, c := range map[string]struct {
		before corev1.Node
		after  bool // cordoned
		said   phasetest.Line
	}{
		"schedulable":                                {said: phasetest.Line{"is cordoned\n"}},
		"cordoned by somebody":                       {before: corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, after: true, said: stays},
		"cordoned by a run that was killed":          {before: cordoned("v1.37.2", "slipway"), said: phasetest.Line{"is cordoned\n"}},
		"cordoned for an earlier upgrade":            {before: cordoned("v1.36.4", "slipway"), after: true, said: stays},
		"uncordoned, and cordoned again by somebody": {before: cordoned("v1.37.2", "kubectl"), after: true, said: stays},
		"uncordoned by somebody meanwhile": {before: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cordonedHere: "v1.37.2", "own": "x"}},
		}, said: phasetest.Line{"is cordoned\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDrainStage(t)
			n := c.before.DeepCopy()
			n.Name = s.Config.Name
			phasetest.Fatal(t, s.api.EnsureAbsent(t.Context(), n))
			phasetest.Fatal(t, s.api.Ensure(t.Context(), n))
			s.Play(t, drain())
			if !s.node(t).Spec.Unschedulable {
				t.Error("not cordoned while it is upgraded")
			}
			s.SaidOnce(t, c.said)
			s.Play(t, uncordon())
			_, left := c.before.Annotations[cordonedHere]
			s.checkCordoned(t, c.after, c.after && left)
			if s.node(t).Annotations["own"] != n.Annotations["own"] {
				t.Error("another annotation changed")
			}
			s.Done = nil
			s.Play(t, uncordon())
			if len(s.Done) > 0 {
				t.Errorf("the second time it did %q", s.Done)
			}
		})
	}
}

// TestCordonedByPhase: a node cordoned by the phase's own command stays so in an upgrade without --drain.
func TestCordonedByPhase(t *testing.T) {
	s := newDrainStage(t)
	s.Play(t, drain())
	asked := s.Config.Upgrade.Drain
	s.Config.Upgrade.Drain = nil
	s.Play(t, drain(), uncordon())
	s.checkCordoned(t, true, true)
	s.SaidOnce(t, phasetest.Line{"still cordoned", "`slipway upgrade node phase uncordon`"})
	s.Config.Upgrade.Drain = asked
	s.Play(t, uncordon())
	s.checkCordoned(t, false, false)
}

// TestStaleAnnotation: any upgrade removes the annotation from a node that somebody has uncordoned.
func TestStaleAnnotation(t *testing.T) {
	for _, asked := range []bool{true, false} {
		s := newDrainStage(t)
		s.Play(t, drain())
		n := s.node(t)
		n.Spec.Unschedulable = false
		phasetest.Fatal(t, s.api.EnsureAbsent(t.Context(), n))
		phasetest.Fatal(t, s.api.Ensure(t.Context(), n))
		if !asked {
			s.Config.Upgrade.Drain = nil
		}
		s.Play(t, uncordon())
		s.checkCordoned(t, false, false)
	}
}

// TestDrainIsNotDefault: without --drain, nothing is cordoned or evicted, as in kubeadm.
func TestDrainIsNotDefault(t *testing.T) {
	s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"))
	s.Config.Upgrade.Drain = nil
	s.Play(t, drain(), uncordon())
	s.checkCordoned(t, false, false)
	if len(s.api.asked)+len(s.Done) > 0 {
		t.Errorf("evicted %q, did %q", s.api.asked, s.Done)
	}
}

func TestDrainWithoutNode(t *testing.T) {
	s := newDrainStage(t)
	phasetest.Fatal(t, s.api.EnsureAbsent(t.Context(), s.node(t)))
	fact.Error(t, s.drain(t), "no Node "+s.Config.Name)
}

func TestDrainPlan(t *testing.T) {
	s := newDrainStage(t, phasetest.PodOf("a", "ReplicaSet"), phasetest.PodOf("d", "DaemonSet"))
	var did []string
	s.Cluster = cluster.NewPlan(func(a cluster.Action) { did = append(did, string(a.Verb)+" "+a.Kind+" "+a.Name) }, s.api)
	s.Play(t, drain(), uncordon())
	want := []string{"ensure Node " + s.Config.Name, "evict Pod a", "ensure Node " + s.Config.Name}
	if diff := cmp.Diff(want, did); diff != "" || len(s.api.asked) > 0 {
		t.Errorf("%s; evicted: %q", diff, s.api.asked)
	}
}
