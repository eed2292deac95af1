// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// ofAddons changes CoreDNS and kube-proxy.
const (
	ofAddons    = ofCluster + "dns: {imageRepository: example.org/next}\n---\n" + ofKubeProxy
	ofKubeProxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nhealthzBindAddress: 127.0.0.1:10256\n"
)

// controllers is an API whose add-ons have Pods: kube-proxy here and on another node, CoreDNS on that alone.
type controllers struct {
	cluster.Cluster
	t       *testing.T
	before  map[string]*corev1.PodTemplateSpec
	unready bool // the former Pods
	// become changes the new Pods by their workload's name, at each look.
	become func(name string, p *corev1.Pod, look int)
	looks  int
	unseen bool // the controller manager hasn't looked at kube-proxy yet
}

func withControllers(t *testing.T, s *phasetest.Stage) *controllers {
	t.Helper()
	c := &controllers{Cluster: s.API, t: t, before: map[string]*corev1.PodTemplateSpec{}, become: func(string, *corev1.Pod, int) {}}
	for _, name := range []string{"coredns", "kube-proxy"} {
		c.before[name] = c.template(name).DeepCopy()
	}
	s.Cluster = c
	return c
}

func (c *controllers) template(name string) *corev1.PodTemplateSpec {
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: name}
	d, r := &appsv1.DaemonSet{ObjectMeta: meta}, &appsv1.Deployment{ObjectMeta: meta}
	var workload cluster.Object = d
	if name == "coredns" {
		workload = r
	}
	if found, err := c.Get(c.t.Context(), workload); err != nil || !found {
		c.t.Fatalf("%s: %t, %v", name, found, err)
	}
	if name == "coredns" {
		return &r.Spec.Template
	}
	return &d.Spec.Template
}

// Get marks kube-proxy as changed since the controller manager has looked at it, if so.
func (c *controllers) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	found, err := c.Cluster.Get(ctx, obj)
	if d, is := obj.(*appsv1.DaemonSet); is && c.unseen {
		d.Generation = d.Status.ObservedGeneration + 1
	}
	return found, err
}

func (c *controllers) Pods(_ context.Context, _, selector string) (pods []corev1.Pod, err error) {
	c.looks++
	name, nodes := "kube-proxy", []string{"worker-1", "cp-1"}
	if !strings.Contains(selector, name) {
		name, nodes = "coredns", nodes[:1]
	}
	for _, on := range nodes {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name + "-old-" + on}, Spec: corev1.PodSpec{NodeName: on}}
		status := corev1.ConditionTrue
		if c.unready {
			status = corev1.ConditionFalse
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name}}
		if name != "coredns" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, Controller: ptr.To(true)}}
		}
		if !reflect.DeepEqual(c.before[name], c.template(name)) {
			p.Name = name + "-new-" + on
			c.become(name, &p, c.looks)
		}
		p.UID = types.UID(p.Name)
		pods = append(pods, p)
	}
	if name != "coredns" { // somebody's Pod with the same label is neither deleted nor a sign that kube-proxy works
		others := *pods[1].DeepCopy()
		others.Name, others.OwnerReferences, others.UID = "others", nil, types.UID(fmt.Sprint("others-", c.looks))
		others.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pods = append([]corev1.Pod{others}, pods...)
	}
	return pods, nil
}

func (c *controllers) AwaitPods(ctx context.Context, namespace, selector string, check func([]corev1.Pod) error) error {
	pods, _ := c.Pods(ctx, namespace, selector)
	return check(pods)
}

func (c *controllers) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	return take(strings.NewReader("the log of " + q.Path + "\n"))
}

// waits makes the new Pods of an add-on wait for a reason.
func waits(addon, reason string) func(string, *corev1.Pod, int) {
	return func(name string, p *corev1.Pod, _ int) {
		if name == addon {
			p.Status.Conditions = nil
			p.Status.ContainerStatuses[0].RestartCount = 2
			p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		}
	}
}

// TestAddonsOnTrial: a change of the add-ons counts once a new Pod of each has worked: kube-proxy's on this node, which is the first,
// and any of CoreDNS. Otherwise they're put back.
func TestAddonsOnTrial(t *testing.T) {
	for name, test := range map[string]struct {
		unready bool
		become  func(string, *corev1.Pod, int)
		fails   []string // the error's facts
		warns   []string
	}{
		"work": {become: func(string, *corev1.Pod, int) {}},
		"kube-proxy crashes": {
			become: waits("kube-proxy", "CrashLoopBackOff"),
			fails:  []string{"kube-proxy-new-cp-1", "CrashLoopBackOff", "/api/v1/namespaces/kube-system/pods/kube-proxy-new-cp-1/log"},
		},
		"kube-proxy seems Ready between its crashes": {
			become: func(name string, p *corev1.Pod, look int) {
				if name == "kube-proxy" {
					p.Status.ContainerStatuses[0].RestartCount = int32(look)
				}
			},
			fails: []string{"kube-proxy-new-cp-1"},
		},
		"CoreDNS has no image": {become: waits("coredns", "ImagePullBackOff"), fails: []string{"coredns-new-worker-1", "ImagePullBackOff"}},
		"nothing was Ready before": {unready: true, become: func(string, *corev1.Pod, int) {}, warns: []string{
			"`kubectl -n kube-system describe pods -l k8s-app=kube-dns`", "`kubectl -n kube-system describe pods -l k8s-app=kube-proxy`",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			were, had := files(t, s), configuration(t, s)
			api := withControllers(t, s)
			api.unready, api.become = test.unready, test.become
			err := step.Run(t.Context(), s.Env, changeTo(t, s, ofAddons).Phases(), step.Options{})
			proxy, image := stored(t, s, "kube-proxy", "config.conf"), api.template("coredns").Spec.Containers[0].Image
			fact.Error(t, err, test.fails...)
			fact.In(t, s.Said.String(), test.warns...)
			if test.fails != nil {
				isBefore(t, s, were, had)
				fact.NotIn(t, proxy, "127.0.0.1:10256")
				fact.NotIn(t, image, "example.org/next")
				return
			}
			fact.In(t, proxy, "127.0.0.1:10256")
			fact.In(t, image, "example.org/next")
			if got := state(t, s); got != trial.Completed {
				t.Errorf("the change is %q", got)
			}
			deleted := strings.Count(strings.Join(s.Done, "\n"), "delete Pod")
			if test.unready && deleted > 0 || !test.unready && (deleted != 1 || !strings.Contains(strings.Join(s.Done, "\n"), "delete Pod kube-proxy-old-cp-1")) {
				t.Errorf("did %q", s.Done)
			}
		})
	}
}

// TestAddonsInPlan: a plan of a change of the add-ons waits for nothing.
func TestAddonsInPlan(t *testing.T) {
	s := live(t)
	api := withControllers(t, s)
	api.unseen, api.become = true, func(string, *corev1.Pod, int) { t.Error("it looks for new Pods") }
	r := changeTo(t, s, ofAddons)
	planned, steps := inPlan(s, api)
	phasetest.Fatal(t, step.Run(t.Context(), planned, r.Phases(), step.Options{Serial: true}))
	fact.In(t, steps.String(), "ensure DaemonSet kube-proxy", "delete Pod kube-proxy-old-cp-1", "ensure Deployment coredns")
}

var errAddon = errors.New("the API refuses to list Pods")

// TestAddonsUnseen: if nobody knows whether an add-on works, it goes back.
func TestAddonsUnseen(t *testing.T) {
	s := live(t)
	were, had := files(t, s), configuration(t, s)
	s.Cluster = unseen{withControllers(t, s)}
	err := step.Run(t.Context(), s.Env, changeTo(t, s, ofAddons).Phases(), step.Options{})
	if !errors.Is(err, errAddon) {
		t.Error(err)
	}
	isBefore(t, s, were, had)
}

type unseen struct{ *controllers }

func (unseen) AwaitPods(context.Context, string, string, func([]corev1.Pod) error) error {
	return errAddon
}
