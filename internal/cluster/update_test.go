// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func setKey(ctx context.Context, c Cluster) error {
	cm := configMap("c", nil)
	found, err := c.Update(ctx, cm, func() (bool, error) {
		changed := cm.Data["k"] != "v"
		cm.Data["k"] = "v"
		return changed, nil
	})
	if err == nil && !found {
		err = errors.New("not found")
	}
	return err
}

// TestUpdateKeepsWhatOthersWrite lets another client write between the read and the write.
func TestUpdateKeepsWhatOthersWrite(t *testing.T) {
	a := newAPI(t)
	a.put(t, configMap("c", map[string]string{"k": "old", "theirs": "1"}))
	a.faults[http.MethodPut] = []fakeapi.Fault{func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		a.put(t, configMap("c", map[string]string{"k": "old", "theirs": "2"}))
		serve(w, r)
	}}
	r := a.client(t)
	for range 2 { // the second time, there's nothing to change
		if err := setKey(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	got := configMap("c", nil)
	if _, err := r.Get(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"k": "v", "theirs": "2"}, got.Data); diff != "" {
		t.Error(diff)
	}
	if a.written() != 1 {
		t.Errorf("%d writes, want one", a.written())
	}
}

func TestUpdateWritesNothing(t *testing.T) {
	a := newAPI(t)
	a.put(t, configMap("c", map[string]string{"k": "old"}))
	r := a.client(t)
	found, err := r.Update(t.Context(), configMap("missing", nil), func() (bool, error) { return true, nil })
	if found || err != nil {
		t.Errorf("missing object: found %v, error %v", found, err)
	}
	refused := errors.New("refused")
	if _, err := r.Update(t.Context(), configMap("c", nil), func() (bool, error) { return true, refused }); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if a.written() != 0 {
		t.Errorf("%d writes", a.written())
	}
}

// TestRewrite sends a patch without a change, and doesn't mind a Secret that's gone.
func TestRewrite(t *testing.T) {
	a := newAPI(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}
	r := a.client(t)
	if err := r.Ensure(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	a.faults[http.MethodPatch] = []fakeapi.Fault{answers(503, "", "")}
	for _, name := range []string{"s", "gone"} {
		if err := r.Rewrite(t.Context(), "default", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	if _, err := r.Get(t.Context(), got); err != nil || string(got.Data["k"]) != "v" {
		t.Errorf("afterwards, it has %q: %v", got.Data, err)
	}
	if err := NewPlan(func(Action) {}, nil).Rewrite(t.Context(), "default", "s"); err == nil {
		t.Error("a plan rewrites")
	}
}

func TestPlanUpdates(t *testing.T) {
	var lines []string
	p := NewPlan(func(a Action) {
		lines = append(lines, fmt.Sprint(a.Verb, " ", a.Name, " ", a.Object.(*corev1.ConfigMap).Data))
	}, nil)
	if err := setKey(t.Context(), p); err == nil {
		t.Error("updated a missing object")
	}
	if err := p.Ensure(t.Context(), configMap("c", map[string]string{"k": "old", "other": "x"})); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := setKey(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"ensure c map[k:old other:x]", "ensure c map[k:v other:x]"}, lines); diff != "" {
		t.Error(diff)
	}
}
