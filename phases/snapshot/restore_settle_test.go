// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// restoredAPI is the API of a restored cluster. Leases are renewed whenever somebody looks, except those of stopped holders.
type restoredAPI struct {
	cluster.Cluster
	looks     atomic.Int64
	nodes     []string
	stopped   []string
	lacks     []string // Leases
	notReady  []string // Nodes
	endpoints []discoveryv1.Endpoint
	pods      []corev1.Pod
	// lists are a kubelet's lists of Pods, by their path below its Node; nil for a kubelet with the Pods of the API. unreached is set if
	// no kubelet is reached.
	lists     map[string][]corev1.Pod
	unreached bool
	// again are Nodes that kubelets have registered in the restored cluster, labels those of this host's Node, and marked what it got.
	again  []string
	labels map[string]string
	marked []string
}

// node is a Node of the snapshot, from before the restore at noon, or one that's registered again.
func (c *restoredAPI) node(name string) *corev1.Node {
	n := cluster.NewNode(name)
	n.Labels = c.labels
	if n.CreationTimestamp.Time = noon.Add(-time.Hour); slices.Contains(c.again, name) {
		n.CreationTimestamp.Time = noon
	}
	return n
}

func (c *restoredAPI) MarkNode(_ context.Context, name string, mark cluster.Mark) error {
	c.marked = append([]string{name}, node.MarkNames(mark)...)
	return nil
}

func (c *restoredAPI) Nodes(context.Context) (list []corev1.Node, err error) {
	for _, name := range c.nodes {
		n, status := c.node(name), corev1.ConditionTrue
		if slices.Contains(c.notReady, name) {
			status = corev1.ConditionUnknown
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(noon)}}
		list = append(list, *n)
	}
	return list, nil
}

func (c *restoredAPI) Get(_ context.Context, obj cluster.Object) (bool, error) {
	lease, renewed := obj.(*coordinationv1.Lease), noon
	if slices.Contains(c.lacks, lease.Name) {
		return false, nil
	}
	if !slices.Contains(c.stopped, lease.Name) {
		renewed = noon.Add(time.Duration(c.looks.Add(1)) * time.Second)
	}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(renewed))
	return true, nil
}

func (c *restoredAPI) AwaitReport(_ context.Context, name string, since time.Time) error {
	if slices.Contains(c.stopped, name) || since.Before(noon) {
		return errors.New("no report")
	}
	return nil
}

func (c *restoredAPI) AwaitNode(_ context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	return check(c.node(name), nil)
}

// kubeletPods are the Pods in a kubelet's list.
func (c *restoredAPI) kubeletPods(path string) (list corev1.PodList) {
	name, which, _ := strings.Cut(path, "/proxy/")
	if c.lists != nil {
		list.Items = c.lists[name+"/"+which]
		return list
	}
	for _, p := range c.pods {
		if p.Spec.NodeName == name {
			list.Items = append(list.Items, p)
		}
	}
	return list
}

func (c *restoredAPI) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	if path, ofKubelet := strings.CutPrefix(q.Path, "/api/v1/nodes/"); ofKubelet {
		if c.unreached {
			return errors.New("no route to host")
		}
		data, err := json.Marshal(c.kubeletPods(path))
		if err != nil {
			return err
		}
		return take(strings.NewReader(string(data)))
	}
	data, err := json.Marshal(discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, Endpoints: c.endpoints}}})
	if err != nil {
		return err
	}
	return take(strings.NewReader(string(data)))
}

func (c *restoredAPI) Pods(context.Context, string, string) ([]corev1.Pod, error) { return c.pods, nil }

func endpoint(pod string, ready *bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID("uid-" + pod)}}
}

// published is the endpoint of a Pod that isn't ready, whose Service has publishNotReadyAddresses.
func published(pod string) discoveryv1.Endpoint {
	e := endpoint(pod, ptr.To(true))
	e.Conditions.Serving = ptr.To(false)
	return e
}

// onWorker is a ready Pod of worker-1, as its kubelet has it from the API.
func onWorker(name string) corev1.Pod {
	p := pod(name, corev1.ConditionTrue)
	p.Namespace, p.Spec.NodeName, p.Annotations = "shop", "worker-1", map[string]string{configSource: "api"}
	return p
}

func pod(name string, ready corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// TestSettleElections: a restore waits for the Leases with which this host's components elect a leader, and for no others.
func TestSettleElections(t *testing.T) {
	const config, anotherName = "--config=/srv/enc/scheduler.yaml", "kind: X\nleaderElection: {resourceName: mine}\n"
	usual := "kube-scheduler"
	for name, c := range map[string]struct {
		flags, file string
		lacks       string
		stopped     string // this Lease isn't renewed
		fails       bool
	}{
		"as usual":                       {"", "", "", usual, true},
		"none yet":                       {"--leader-elect", "", usual, "", true},
		"no election":                    {"--leader-elect=false", "", usual, "", false},
		"none any more":                  {"--leader_elect=F", "", "", usual, false},
		"another name":                   {"--leader-elect-resource-name=mine", "", usual, "", false},
		"another name, not renewed":      {"--leader-elect-resource-name=mine", "", "", "mine", true},
		"a file":                         {config, "kind: X\n", "", usual, true},
		"a file, no election":            {config, "leaderElection: {leaderElect: false}\n", usual, "", false},
		"a file, and a flag before it":   {config + ", --leader-elect=true", "leaderElection: {leaderElect: false}\n", "", usual, true},
		"a file, another name":           {config, anotherName, usual, "", false},
		"a file, another, not renewed":   {config, anotherName, "", "mine", true},
		"a file that isn't on this host": {"--config=/etc/in-image.yaml", "", usual, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := alone(t)
			s.Put(t, "/etc/kubernetes/manifests/kube-scheduler.yaml", "kind: Pod\nspec: {containers: [{name: c, command: [kube-scheduler, "+c.flags+
				"], volumeMounts: [{name: v, mountPath: /srv/enc}]}], volumes: [{name: v, hostPath: {path: /srv/enc}}]}\n")
			s.Put(t, "/srv/enc/scheduler.yaml", c.file)
			s.Cluster = &restoredAPI{nodes: []string{"cp-1"}, lacks: []string{c.lacks}, stopped: []string{c.stopped}}
			err := (&Restore{}).settle(t.Context(), s.Env)
			fact.Error(t, err, map[bool][]string{true: {usual}}[c.fails]...)
		})
	}
}

// fullAgain is a restore of a snapshot from a full etcd, once etcd has the data.
func fullAgain(t *testing.T) (*phasetest.Stage, *members, *Restore) {
	t.Helper()
	s, m, path := alone(t)
	m.health[0].Status.Alarms = []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}}
	r := &Restore{Source: Source{File: path}}
	r.journal.Cluster = "abc"
	return s, m, r
}

// TestSettleOfFullEtcd: nothing can report in a full etcd, so a restore ends at once, and finishes once there's room. A plan has
// restored nothing, so the alarm is that of the present data.
func TestSettleOfFullEtcd(t *testing.T) {
	s, m, r := fullAgain(t)
	s.Cluster = &restoredAPI{nodes: []string{"cp-1"}}
	err := r.settle(t.Context(), s.Env)
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fixture.Told(err), "NOSPACE", "`slipway etcd defrag`")
	m.health[0].Status.Alarms = nil
	phasetest.Fatal(t, r.settle(t.Context(), s.Env))

	s, _, r = fullAgain(t)
	s.Cluster, r.journal.Cluster = &restoredAPI{nodes: []string{"cp-1"}}, ""
	phasetest.Fatal(t, r.settle(t.Context(), s.Env))
}

// TestBareHostFull: an API server may not start with a full etcd, and the later phases of init write to the API.
func TestBareHostFull(t *testing.T) {
	for name, waited := range map[string]error{"the API server runs": nil, "it does not start": errors.New("not healthy")} {
		s, m, r := fullAgain(t)
		b := &BareHost{Restore: *r}
		workflow := []step.Phase{{Name: "wait-control-plane", Children: []step.Phase{{Name: "api-server"},
			{Name: "health", Run: func(context.Context, *step.Env) error { return waited }}}}}
		health := b.AddTo(workflow)[0].Children[1].Run
		err := health(t.Context(), s.Env)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		fact.In(t, fixture.Told(err), "NOSPACE", "`slipway etcd defrag`")
		m.health[0].Status.Alarms = nil
		if err := health(t.Context(), s.Env); !errors.Is(err, waited) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSettle: a restore ends once kubelets and controllers work with the restored state, and names the Nodes that don't fit it.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		api     *restoredAPI
		present []string // Nodes before the restore
		fails   []string // facts of the error
		says    []string
	}{
		"settled": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, endpoints: []discoveryv1.Endpoint{endpoint("a", nil), endpoint("b", ptr.To(false))},
			pods: []corev1.Pod{pod("a", corev1.ConditionTrue)}}, []string{"cp-1", "worker-1"}, nil, nil},
		"the controller manager is late":      {&restoredAPI{nodes: []string{"cp-1"}, stopped: []string{"kube-controller-manager"}}, nil, []string{"kube-controller-manager"}, nil},
		"a node is gone, and counts as Ready": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, stopped: []string{"worker-1"}}, nil, []string{"worker-1"}, nil},
		"a node is gone": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, stopped: []string{"worker-1"}, notReady: []string{"worker-1"}}, nil,
			nil, []string{"worker-1", "`slipway reset node worker-1`"}},
		"a node had left, another has joined": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, stopped: []string{"worker-1"}, notReady: []string{"worker-1"}},
			[]string{"cp-1", "worker-2"}, nil, []string{"worker-2", "`systemctl restart kubelet`", "`slipway reset node worker-1`"}},
		"a worker has joined, and its kubelet has restarted": {&restoredAPI{nodes: []string{"cp-1", "worker-2"}, again: []string{"worker-2"}},
			[]string{"cp-1", "worker-2"}, nil, []string{"worker-2"}},
		"a Pod that is gone": {&restoredAPI{nodes: []string{"cp-1"}, endpoints: []discoveryv1.Endpoint{endpoint("a", nil)}}, nil, []string{"shop/web-1", "Pod a"}, nil},
		"a Pod of the same name": {&restoredAPI{nodes: []string{"cp-1"}, endpoints: []discoveryv1.Endpoint{endpoint("a", ptr.To(true))},
			pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "other"}}}}, nil, []string{"shop/web-1", "Pod a"}, nil},
		"a Pod that isn't ready, of a Service with publishNotReadyAddresses": {&restoredAPI{nodes: []string{"cp-1"},
			endpoints: []discoveryv1.Endpoint{published("a")}, pods: []corev1.Pod{pod("a", corev1.ConditionFalse)}}, nil, nil, nil},
		"a kubelet that has not listed again": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, pods: []corev1.Pod{onWorker("a")},
			lists: map[string][]corev1.Pod{}}, []string{"cp-1"}, []string{"worker-1", "shop/a"}, nil},
		"a Pod of the lost future": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, pods: []corev1.Pod{onWorker("a")},
			lists: map[string][]corev1.Pod{"worker-1/pods": {onWorker("a"), onWorker("b")}, "worker-1/runningpods/": {onWorker("a")}}},
			nil, []string{"worker-1", "shop/b"}, nil},
		"a ready Pod that does not run": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, pods: []corev1.Pod{onWorker("a")},
			lists: map[string][]corev1.Pod{"worker-1/pods": {onWorker("a")}}}, nil, []string{"worker-1", "shop/a"}, nil},
		"kubelets that work": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, pods: []corev1.Pod{onWorker("a")}}, nil, nil, nil},
		"kubelets that nobody reaches": {&restoredAPI{nodes: []string{"cp-1", "worker-1"}, pods: []corev1.Pod{onWorker("a")}, unreached: true},
			nil, nil, []string{"cp-1, worker-1", "`systemctl restart kubelet`"}},
		"a Pod that isn't ready": {&restoredAPI{nodes: []string{"cp-1"}, endpoints: []discoveryv1.Endpoint{endpoint("a", nil)},
			pods: []corev1.Pod{pod("a", corev1.ConditionFalse)}}, nil, []string{"shop/web-1", "Pod a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := alone(t)
			s.Put(t, "/etc/kubernetes/manifests/kube-controller-manager.yaml", "kind: Pod\nspec: {containers: [{name: c}]}\n")
			s.Cluster = c.api
			r := &Restore{}
			r.journal.Nodes, r.journal.Since = c.present, noon
			err := r.settle(t.Context(), s.Env)
			if fact.Error(t, err, c.fails...); err != nil {
				return
			}
			fact.In(t, s.Said.String(), c.says...)
			if fact.NotIn(t, s.Said.String(), "cp-1 has joined"); len(c.says) == 0 {
				fact.NotIn(t, s.Said.String(), "worker-1")
			}
		})
	}
}

// TestRestoreMarksAgain: a control plane that has joined since the snapshot gets back the label and the taint that it had.
func TestRestoreMarksAgain(t *testing.T) {
	label, exclude := "label "+cluster.LabelControlPlane, "label node.kubernetes.io/exclude-from-external-load-balancers"
	taint := "taint " + config.ControlPlaneTaint + ":NoSchedule"
	for name, c := range map[string]struct {
		api      *restoredAPI
		since    time.Time
		unmarked []string
		want     []string
	}{
		"joined since":                  {&restoredAPI{again: []string{"cp-1"}}, noon.Add(500 * time.Millisecond), nil, []string{"cp-1", label, exclude, taint}},
		"joined since, without a taint": {&restoredAPI{again: []string{"cp-1"}}, noon, []string{taint}, []string{"cp-1", label, exclude}},
		"joined since, marked already":  {&restoredAPI{again: []string{"cp-1"}, labels: map[string]string{cluster.LabelControlPlane: ""}}, noon, nil, nil},
		"unmarked before":               {&restoredAPI{again: []string{"cp-1"}}, noon, []string{label, exclude, taint}, nil},
		"unmarked in the snapshot":      {&restoredAPI{}, noon, nil, nil},
		"a bare host, which init marks": {&restoredAPI{again: []string{"cp-1"}}, time.Time{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := alone(t)
			c.api.nodes = []string{"cp-1"}
			s.Cluster = c.api
			r := &Restore{}
			r.journal.Since, r.journal.Unmarked = c.since, c.unmarked
			phasetest.Fatal(t, r.settle(t.Context(), s.Env))
			fact.List(t, c.api.marked, c.want...)
			if len(c.want) > 0 {
				fact.In(t, s.Said.String(), c.want...)
			}
		})
	}
}

// TestRestoreNotesMarks: the journal has the marks that an operator had removed before the restore. A Node without the label may have
// lost its marks to an earlier restore.
func TestRestoreNotesMarks(t *testing.T) {
	s, _, _ := alone(t)
	s.Cluster = &restoredAPI{nodes: []string{"cp-0", "cp-1"}}
	r := &Restore{}
	r.noteNodes(t.Context(), s.Env)
	fact.List(t, r.journal.Unmarked)
	s.Cluster = &restoredAPI{nodes: []string{"cp-0", "cp-1"}, labels: map[string]string{cluster.LabelControlPlane: ""}}
	r.noteNodes(t.Context(), s.Env)
	all := node.ControlPlaneMark(s.Config)
	delete(all.Labels, cluster.LabelControlPlane)
	fact.List(t, r.journal.Unmarked, node.MarkNames(all)...)
	fact.List(t, r.journal.Nodes, "cp-0", "cp-1")
}
