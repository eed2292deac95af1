// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-1"}, Spec: corev1.PodSpec{NodeName: node}}
}

// TestEvict shows which refusals of an eviction may pass, and which don't.
func TestEvict(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	terminating := apierrors.NewForbidden(pods, "a", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		answer        *apierrors.StatusError
		blocked, fail string
	}{
		"evicted":                     {},
		"gone":                        {answer: apierrors.NewNotFound(pods, "a")},
		"a budget":                    {answer: budget, blocked: "The disruption budget web needs 2 healthy pods and has 2 currently"},
		"several budgets":             {answer: apierrors.NewInternalError(errors.New("more than one budget")), blocked: "more than one budget"},
		"another Pod has the name":    {answer: apierrors.NewConflict(pods, "a", errors.New("the UID differs")), blocked: "the UID differs"},
		"its namespace is going":      {answer: terminating, blocked: "it is being terminated"},
		"not allowed, which is final": {answer: apierrors.NewForbidden(pods, "a", errors.New("no rule")), fail: "evict Pod default/a"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			asked := ""
			a.hook = func(r *http.Request, _ string) fakeapi.Fault {
				asked += r.Method + " " + r.URL.Path + "\n"
				if c.answer == nil || r.URL.Path == "/readyz" {
					return nil
				}
				return fakeapi.Refuse(c.answer)
			}
			err := a.client(t).Evict(t.Context(), pod("a", "n"))
			blocked := (*BlockedError)(nil)
			switch {
			case c.blocked != "" && (!errors.As(err, &blocked) || blocked.Pod != "default/a" || !strings.Contains(blocked.Reason, c.blocked)):
				t.Errorf("%v, want %q", err, c.blocked)
			case c.fail != "" && (err == nil || errors.As(err, &blocked) || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("%v, want %q", err, c.fail)
			case c.blocked+c.fail == "" && err != nil:
				t.Error(err)
			}
			want := "POST /api/v1/namespaces/default/pods/a/eviction\n"
			if c.fail != "" { // a starting server would say so, too
				want += "GET /readyz\n" + want
			}
			if asked != want {
				t.Errorf("asked\n%s", asked)
			}
		})
	}
}

// TestEvictOnlyThisPod: the request names the Pod's UID, so a StatefulSet's new Pod of the same name stays.
func TestEvictOnlyThisPod(t *testing.T) {
	a := newAPI(t)
	a.put(t, pod("a", "n"))
	if err := a.client(t).Evict(t.Context(), pod("a", "n")); err == nil || !strings.Contains(err.Error(), "UID") {
		t.Errorf("a Pod with another UID: %v", err)
	}
	if !a.Has("/api/v1/namespaces/default/pods/a") {
		t.Error("it was evicted")
	}
}

func TestPodsOn(t *testing.T) {
	a := newAPI(t)
	for _, p := range []*corev1.Pod{pod("a", "n"), pod("b", "other"), pod("c", "n")} {
		a.put(t, p)
	}
	live := a.client(t)
	p := NewPlan(func(Action) {}, live)
	if err := p.Evict(t.Context(), pod("a", "n")); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Cluster{"a c": live, "c": p} {
		list, err := c.PodsOn(t.Context(), "n")
		var names []string
		for i := range list {
			names = append(names, list[i].Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}
