// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func secretNamed(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, StringData: map[string]string{"k": value}}
}

// TestPlanCompared: each intent reports its change, and nothing is written.
func TestPlanCompared(t *testing.T) {
	a := newAPI(t)
	changed := configMap("changed", map[string]string{"ours": "old", "theirs": "kept"})
	node := NewNode("cp-1")
	node.Labels = map[string]string{"a": "b"}
	for _, obj := range []Object{configMap("same", map[string]string{"k": "v"}), changed, secretNamed("known", "old"), node} {
		a.put(t, obj)
	}
	before := a.written()
	got := map[string]*Difference{}
	p := NewPlan(func(action Action) { got[string(action.Verb)+" "+action.Name] = action.Difference }, nil)
	p.CompareWith(a.client(t))
	ctx := t.Context()
	for _, obj := range []Object{configMap("new", nil), configMap("same", map[string]string{"k": "v"}), configMap("changed", map[string]string{"ours": "new"}),
		secretNamed("known", "new"), secretNamed("unknown", "new")} {
		if err := p.Ensure(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"same", "none"} {
		if err := p.EnsureAbsent(ctx, configMap(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.MarkNode(ctx, "cp-1", Mark{Labels: map[string]string{"a": "b", "c": ""}}); err != nil {
		t.Fatal(err)
	}
	fields := func(value string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "changed", "namespace": "kube-system"},
			"data": map[string]any{"ours": value, "theirs": "kept"}}
	}
	marks := func(labels map[string]string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": map[string]string{}}, "spec": map[string]any{"taints": []corev1.Taint(nil)}}
	}
	unmarked := marks(map[string]string{"a": "b"})
	unmarked["metadata"].(map[string]any)["annotations"] = map[string]string(nil)
	want := map[string]*Difference{
		"ensure new":     {Change: Create},
		"ensure same":    {Change: None},
		"ensure changed": {Change: Update, Before: fields("old"), After: fields("new")},
		"ensure known":   {Change: Update},
		"ensure unknown": {Change: Create},
		"delete same":    {Change: Delete},
		"delete none":    {Change: None},
		"mark cp-1":      {Change: Update, Before: unmarked, After: marks(map[string]string{"a": "b", "c": ""})},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	if a.written() != before {
		t.Error("a comparison wrote")
	}
}

// TestPlanComparedWithNothing: after a request without an answer, there are no more requests.
func TestPlanComparedWithNothing(t *testing.T) {
	a := newAPI(t)
	a.faults["GET"] = slices.Repeat([]fakeapi.Fault{answers(401, "", "")}, 10)
	var got []*Difference
	p := NewPlan(func(action Action) { got = append(got, action.Difference) }, nil)
	p.CompareWith(a.client(t))
	for _, name := range []string{"a", "b", "c"} {
		if err := p.Ensure(t.Context(), configMap(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 3 || got[0] == nil || got[0].Err == nil || got[1] != nil || got[2] != nil {
		t.Errorf("got %v", got)
	}
	if asked := len(a.seen()); asked != 1 {
		t.Errorf("%d requests", asked)
	}
}

// TestCompareNamesFields names an operator's edits by path. Fields filled in by the server, or open to others' additions, aren't
// differences.
func TestCompareNamesFields(t *testing.T) {
	deployment := func(image, memory string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}}
		d.Spec.Replicas = ptr.To(int32(2))
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "coredns", Image: image,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse(memory)}}}}
		return d
	}
	scaled := deployment("coredns:1", "1024Mi")
	scaled.Spec.Replicas = ptr.To(int32(7))
	scaled.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "r"}, Rules: rules}
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	narrow := rule
	narrow.ResourceNames = []string{"one"}
	service := func(ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: ip}}
	}
	tests := []struct {
		name       string
		have, ours Object
		change     string
		fields     []string
	}{
		{"a key", configMap("c", map[string]string{"Corefile": "theirs", "more": "x"}), configMap("c", map[string]string{"Corefile": "ours"}), Update, []string{"data.Corefile"}},
		{"scaled and completed", scaled, deployment("coredns:1", "1Gi"), None, nil},
		{"an image and a limit", deployment("coredns:2", "2Gi"), deployment("coredns:1", "1Gi"), Update,
			[]string{"spec.template.spec.containers[coredns].image", "spec.template.spec.containers[coredns].resources.limits.memory"}},
		{"one more rule", role(rule, narrow), role(rule), Update, []string{"rules"}},
		{"a narrower rule", role(narrow), role(rule), Update, []string{"rules[0].resourceNames"}},
		{"what is immutable", service("10.0.0.10"), service("10.96.0.10"), Update, []string{"spec.clusterIP"}},
		{"a Secret", secretNamed("s", "theirs"), secretNamed("s", "ours"), Update, nil},
		{"nothing", nil, service("10.96.0.10"), Create, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t)
			planned := NewPlan(func(Action) {}, nil)
			if tt.have != nil {
				a.put(t, tt.have)
				if err := planned.Ensure(t.Context(), tt.have); err != nil {
					t.Fatal(err)
				}
			}
			before := a.written()
			beside := NewPlan(func(Action) {}, nil)
			beside.CompareWith(a.client(t))
			for name, c := range map[string]Cluster{"real": a.client(t), "plan": planned, "plan beside a cluster": beside} {
				got, err := c.Compare(t.Context(), tt.ours)
				if err != nil {
					t.Fatal(err)
				}
				if got.Change != tt.change || !slices.Equal(got.Fields(), tt.fields) {
					t.Errorf("%s: %s %q, want %s %q", name, got.Change, got.Fields(), tt.change, tt.fields)
				}
			}
			if before != a.written() {
				t.Error("comparing wrote")
			}
		})
	}
}

// TestPlanReadsWhatItIsComparedWith reads objects the run hasn't written from the cluster. A cluster that doesn't answer counts
// as empty, and the next comparison reports why.
func TestPlanReadsWhatItIsComparedWith(t *testing.T) {
	a := newAPI(t)
	a.put(t, configMap("there", map[string]string{"k": "v"}))
	var last *Difference
	p := NewPlan(func(action Action) { last = action.Difference }, nil)
	p.CompareWith(a.client(t))
	read := configMap("there", nil)
	if found, err := p.Get(t.Context(), read); err != nil || !found || read.Data["k"] != "v" {
		t.Errorf("found %v, %v, %v", found, read.Data, err)
	}
	p = NewPlan(func(action Action) { last = action.Difference }, nil)
	p.CompareWith(New(Options{Kubeconfig: "gone", ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }}))
	found, err := p.Get(t.Context(), configMap("there", nil))
	secrets, listErr := p.Secrets(t.Context(), "kube-system", "")
	d, compareErr := p.Compare(t.Context(), configMap("there", nil))
	if found || len(secrets) > 0 || d.Change != Create || errors.Join(err, listErr, compareErr) != nil {
		t.Errorf("found %v, %v, %v: %v", found, secrets, d, errors.Join(err, listErr, compareErr))
	}
	for i, want := range []bool{true, false} {
		if err := p.Ensure(t.Context(), configMap("there", nil)); err != nil {
			t.Fatal(err)
		}
		if said := last != nil && errors.Is(last.Err, fs.ErrNotExist); said != want {
			t.Errorf("action %d: %v", i, last)
		}
	}
}
