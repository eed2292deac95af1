// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func tokenSecret(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Type:       corev1.SecretTypeBootstrapToken,
		Data:       map[string][]byte{"token-id": []byte("abcdef")},
		StringData: map[string]string{"token-secret": "0123456789abcdef"},
	}
}

func TestPlanRecordsInOrder(t *testing.T) {
	var lines []string
	p := NewPlan(func(a Action) { lines = append(lines, fmt.Sprint(a.Verb, " ", a.Kind, " ", a.Namespace, "/", a.Name)) }, nil)
	ctx := t.Context()
	for _, err := range []error{
		p.Precreate(ctx, configMap("z", nil)), p.Ready(ctx), p.EnsureAdmin(ctx), p.EnsureAdmin(ctx),
		p.Ensure(ctx, configMap("b", nil), configMap("a", nil), tokenSecret("c")),
		p.MarkNode(ctx, "n1", controlPlane),
		p.AwaitReport(ctx, "n1", time.Now()), // changes nothing
		p.AwaitPods(ctx, "kube-system", "a=b", func([]corev1.Pod) error { return fmt.Errorf("not Ready") }),
		p.EnsureAbsent(ctx, configMap("a", nil)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"pre-create ConfigMap kube-system/z",
		"wait  //readyz",
		"ensure ClusterRoleBinding /kubeadm:cluster-admins",
		"ensure ConfigMap kube-system/b",
		"ensure ConfigMap kube-system/a",
		"ensure Secret kube-system/c",
		"mark Node /n1",
		"delete ConfigMap kube-system/a",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if err := p.Ensure(ctx, configMap("", nil)); err == nil {
		t.Error("a plan accepts what the API would refuse")
	}
}

// TestPlanHidesSecrets: a plan shows a Secret's keys, but none of their values. The run itself reads back its own writes.
func TestPlanHidesSecrets(t *testing.T) {
	var actions []Action
	p := NewPlan(func(a Action) { actions = append(actions, a) }, nil)
	original := tokenSecret("c")
	if err := p.Ensure(t.Context(), original); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"token-id": "<redacted>", "token-secret": "<redacted>"}
	shown := actions[0].Object.(*corev1.Secret)
	if shown.APIVersion != "v1" || shown.Kind != "Secret" {
		t.Errorf("shown without its kind: %+v", shown.TypeMeta)
	}
	if diff := cmp.Diff(want, shown.StringData); diff != "" || shown.Data != nil {
		t.Error(diff, shown.Data)
	}
	text, err := json.Marshal(actions)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"abcdef", "YWJjZGVm", "MDEyMzQ1Njc4OWFiY2RlZg"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s in %s", secret, text)
		}
	}
	if diff := cmp.Diff(tokenSecret("c"), original); diff != "" {
		t.Errorf("the caller's object was changed: %s", diff)
	}
	got := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "c"}}
	if found, err := p.Get(t.Context(), got); !found || err != nil || string(got.Data["token-secret"]) != "0123456789abcdef" {
		t.Errorf("%v, %v, %d values", found, err, len(got.Data))
	}
}

func TestPlanReads(t *testing.T) {
	ctx := t.Context()
	live := NewPlan(func(Action) {}, nil)
	if err := live.Ensure(ctx, tokenSecret("gone"), tokenSecret("theirs"), configMap("live", map[string]string{"k": "live"})); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		live    Cluster
		secrets string
		found   bool
	}{{"empty cluster", nil, "ours", false}, {"over a live one", live, "theirs ours", true}} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPlan(func(Action) {}, tt.live)
			opaque := tokenSecret("opaque")
			opaque.Type = corev1.SecretTypeOpaque
			if err := p.Ensure(ctx, tokenSecret("ours"), opaque); err != nil {
				t.Fatal(err)
			}
			if err := p.EnsureAbsent(ctx, tokenSecret("gone")); err != nil {
				t.Fatal(err)
			}
			list, err := p.Secrets(ctx, "kube-system", "type=bootstrap.kubernetes.io/token")
			var names []string
			for _, s := range list {
				names = append(names, s.Name)
			}
			if got := strings.Join(names, " "); got != tt.secrets || err != nil {
				t.Errorf("%q, %v; want %q", got, err, tt.secrets)
			}
			if found, err := p.Get(ctx, configMap("live", nil)); found != tt.found || err != nil {
				t.Error(found, err)
			}
			if found, err := p.Get(ctx, tokenSecret("gone")); found || err != nil {
				t.Error("a deleted object still exists", err)
			}
			if _, err := p.Secrets(ctx, "kube-system", "nonsense"); err == nil {
				t.Error("an invalid selector is accepted")
			}
		})
	}
}
