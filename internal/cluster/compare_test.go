// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func secretNamed(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, StringData: map[string]string{"k": value}}
}

// TestPlanCompared: each intent tells what it would change, and nothing is
// written.
func TestPlanCompared(t *testing.T) {
	a := newAPI(t)
	changed := configMap("changed", map[string]string{"ours": "old", "theirs": "kept"})
	node := newNode("cp-1")
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

// TestPlanComparedWithNothing: after the first question without an answer no
// more are asked.
func TestPlanComparedWithNothing(t *testing.T) {
	a := newAPI(t)
	a.faults["GET"] = slices.Repeat([]fakeapi.Fault{answers(403, "", "")}, 10)
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
