// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

var controlPlane = Mark{
	Labels:      map[string]string{"node-role.kubernetes.io/control-plane": ""},
	Annotations: map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/a.sock"},
	Taints:      []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}},
}

func TestMarkNode(t *testing.T) {
	a := newAPI(t)
	const path = "/api/v1/nodes/n1"
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	gets, patches := 0, 0
	a.hook = func(r *http.Request, _ string) fakeapi.Fault {
		switch r.Method {
		case http.MethodGet:
			if gets++; gets == 3 { // the kubelet registers its node
				a.Put(path, map[string]any{"metadata": map[string]any{"name": "n1", "labels": map[string]any{"theirs": "yes"}}})
			}
		case http.MethodPatch:
			if patches++; patches == 1 { // another client taints it meanwhile
				node := a.Objects()[path]
				node["spec"] = map[string]any{"taints": []any{map[string]any{"key": notReady.Key, "effect": "NoSchedule"}}}
				a.Put(path, node)
			}
		}
		return nil
	}
	r := a.client(t)
	if err := r.MarkNode(t.Context(), "n1", controlPlane); err != nil {
		t.Fatal(err)
	}
	node := NewNode("n1")
	if _, err := r.Get(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"theirs": "yes", "node-role.kubernetes.io/control-plane": ""}
	diff := cmp.Diff(want, node.Labels) + cmp.Diff(controlPlane.Annotations, node.Annotations) +
		cmp.Diff([]corev1.Taint{notReady, controlPlane.Taints[0]}, node.Spec.Taints)
	if diff != "" {
		t.Error(diff)
	}
	before := a.written()
	if err := r.MarkNode(t.Context(), "n1", controlPlane); err != nil || a.written() != before {
		t.Errorf("marked again: %v, %d writes", err, a.written()-before)
	}
}

func TestMarkNodeThatNeverRegisters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := newAPI(t).client(t).MarkNode(ctx, "n1", controlPlane)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fact.Error(t, err, "Node n1", "journalctl -u kubelet")
}

// TestAwaitReport: reports from before the run began don't count, neither in the Node nor in the Lease.
func TestAwaitReport(t *testing.T) {
	began := time.Now().Truncate(time.Microsecond)
	earlier, later := began.Add(-time.Minute), began.Add(time.Minute)
	node := func(at time.Time) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "n1"}, "status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": "False", "lastHeartbeatTime": at.UTC().Format(time.RFC3339)}}}}
	}
	lease := func(at time.Time) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "n1", "namespace": "kube-node-lease"},
			"spec": map[string]any{"renewTime": at.UTC().Format(metav1.RFC3339Micro)}}
	}
	for _, tt := range []struct {
		name        string
		node, lease map[string]any
		want        []string // facts of the error; none if there's a report
	}{
		{"no node", nil, nil, []string{"Node n1", "not registered"}},
		{"a node of an earlier run", node(earlier), nil, []string{"Node n1", "since " + began.Format(time.RFC3339)}},
		{"its lease, too", node(earlier), lease(earlier.Add(time.Second)), []string{"report: " + earlier.Add(time.Second).Format(time.RFC3339)}},
		{"the moment itself", node(earlier), lease(began), []string{"Node n1", "since " + began.Format(time.RFC3339)}},
		{"heartbeat", node(later), nil, nil},
		{"lease", node(earlier), lease(later), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t)
			if tt.node != nil {
				a.Put("/api/v1/nodes/n1", tt.node)
			}
			if tt.lease != nil {
				a.Put("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", tt.lease)
			}
			limit := 10 * time.Second
			if tt.want != nil {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := a.client(t).AwaitReport(ctx, "n1", began)
			fact.Error(t, err, tt.want...)
		})
	}
}

// TestAwaitPods: the check gets the Pods of the namespace and the labels, until it accepts them. Its last error says what's missing.
func TestAwaitPods(t *testing.T) {
	a := newAPI(t)
	put := func(namespace, name, app string) {
		a.Put("/api/v1/namespaces/"+namespace+"/pods/"+name, map[string]any{
			"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"k8s-app": app}},
		})
	}
	put("kube-system", "dns-1", "kube-dns")
	put("kube-system", "proxy-1", "kube-proxy")
	put("default", "proxy-2", "kube-proxy")
	var seen []string
	err := a.client(t).AwaitPods(t.Context(), "kube-system", "k8s-app=kube-proxy", func(pods []corev1.Pod) error {
		seen = nil
		for _, p := range pods {
			seen = append(seen, p.Name)
		}
		if len(pods) == 1 {
			put("kube-system", "proxy-3", "kube-proxy")
			return errors.New("there is only one")
		}
		return nil
	})
	if err != nil || !slices.Equal(seen, []string{"proxy-1", "proxy-3"}) {
		t.Errorf("%q, %v", seen, err)
	}
}

// TestAwaitObserved: the wait ends once the controller has seen the DaemonSet's generation.
func TestAwaitObserved(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
	put := func(a *api, seen int) {
		a.Put(path, map[string]any{
			"metadata": map[string]any{"namespace": "kube-system", "name": "kube-proxy", "generation": 4},
			"status":   map[string]any{"observedGeneration": seen},
		})
	}
	t.Run("seen after some looks", func(t *testing.T) {
		a, looks := newAPI(t), 0
		put(a, 3)
		a.hook = func(*http.Request, string) fakeapi.Fault {
			if looks++; looks == 3 {
				put(a, 4)
			}
			return nil
		}
		if err := a.client(t).AwaitObserved(t.Context(), "kube-system", "kube-proxy"); err != nil || looks != 3 {
			t.Errorf("%d looks: %v", looks, err)
		}
	})
	for name, prepare := range map[string]func(*api){"not seen": func(a *api) { put(a, 3) }, "gone": func(*api) {}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			prepare(a)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			fact.Error(t, a.client(t).AwaitObserved(ctx, "kube-system", "kube-proxy"), "DaemonSet kube-system/kube-proxy")
		})
	}
}

func TestMarkPatch(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := NewNode("n1")
		n.ResourceVersion = "7"
		n.Labels, n.Annotations, n.Spec.Taints = controlPlane.Labels, controlPlane.Annotations, slices.Clone(controlPlane.Taints)
		change(n)
		return n
	}
	tests := []struct {
		name string
		live *corev1.Node
		want map[string]any
	}{
		{"nothing lacks", node(func(*corev1.Node) {}), nil},
		{"label; the kubelet may write meanwhile", node(func(n *corev1.Node) { n.Labels = nil }),
			map[string]any{"metadata": map[string]any{"labels": controlPlane.Labels}}},
		{"annotation with another value", node(func(n *corev1.Node) { n.Annotations = map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "b"} }),
			map[string]any{"metadata": map[string]any{"annotations": controlPlane.Annotations}}},
		{"taint", node(func(n *corev1.Node) { n.Spec.Taints = nil }),
			map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "spec": map[string]any{"taints": controlPlane.Taints}}},
		{"taint with another value", node(func(n *corev1.Node) { n.Spec.Taints[0].Value = "x" }),
			map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "spec": map[string]any{"taints": controlPlane.Taints}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, markPatch(tt.live, controlPlane)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
