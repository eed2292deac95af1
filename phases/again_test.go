// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// edited are ConfigMaps that administrators edit, by name and key.
var edited = map[string]string{"coredns": "Corefile", "kube-proxy": "config.conf", "kubelet-config": "kubelet"}

// edit changes what the first run left in the API, and deletes the workload of CoreDNS.
func (s *stage) edit(t *testing.T) {
	t.Helper()
	for name, key := range edited {
		cm := systemConfigMap(t, s, name)
		cm.Data[key] = "edited"
		if err := s.api.Ensure(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}}
	if err := s.api.EnsureAbsent(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
}

// TestAgainKeepsWhatWasEdited: init on a working control plane undoes nothing that an administrator did, and creates
// what is missing. The command of a single phase writes its configuration, except for an edited Corefile. Both report
// this once for each object.
func TestAgainKeepsWhatWasEdited(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	workflow := []Phase{uploadConfig(), markControlPlane(), addon()}
	s.play(t, workflow...)
	s.edit(t)
	api := &marked{Plan: s.api}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", Labels: map[string]string{cluster.LabelControlPlane: ""}}}
	if err := s.api.Ensure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s.Cluster = api

	s.Again, s.done = true, nil
	s.said.Reset()
	s.play(t, workflow...)
	if want := []string{"ensure Deployment coredns"}; !slices.Equal(s.done, want) {
		t.Errorf("did %q, want %q", s.done, want)
	}
	s.saidOnce(t, line{"[WARNING]", "keeping ConfigMap kube-system/coredns", ": data.Corefile\n"},
		line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", ": data.config.conf\n"},
		line{"[WARNING]", "`slipway init phase addon kube-proxy`\n"},
		line{"[WARNING]", "keeping ConfigMap kube-system/kubelet-config", ": data.kubelet\n"},
		line{"[WARNING]", "keeping Node cp-1", "label node.kubernetes.io/exclude-from-external-load-balancers, taint node-role.kubernetes.io/control-plane:NoSchedule\n"},
		line{"[WARNING]", "`slipway init phase mark-control-plane`\n"})
	s.showsRun(t, "init-again-objects", workflow...)
	for name, key := range edited {
		if got := systemConfigMap(t, s, name).Data[key]; got != "edited" {
			t.Errorf("ConfigMap %s was written again:\n%s", name, got)
		}
	}
	if len(api.mark.Taints) > 0 {
		t.Errorf("removed taints are back: %v", api.mark.Taints)
	}

	if len(api.mark.Labels) > 0 {
		t.Errorf("removed labels are back: %v", api.mark.Labels)
	}

	s.Again = false
	s.said.Reset()
	s.play(t, workflow...)
	for name, key := range edited {
		if got := systemConfigMap(t, s, name).Data[key]; (got == "edited") != (name == "coredns") {
			t.Errorf("ConfigMap %s after the phase's own command:\n%s", name, got)
		}
	}
	s.saidOnce(t, line{"[WARNING]", "keeping ConfigMap kube-system/coredns", ": data.Corefile\n"}, line{"replacing", "ConfigMap kube-system/kube-proxy: data.config.conf"})
	if len(api.mark.Taints) != 1 {
		t.Errorf("the phase's own command set the taints %v", api.mark.Taints)
	}
}

// TestAgainFinishes: init creates what an interrupted run did not create.
func TestAgainFinishes(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Again = true
	api := &marked{Plan: s.api}
	for _, phase := range []Phase{uploadConfig(), markControlPlane(), addon()} {
		s.Cluster = &unbound{marked: api} // whichever phase comes first
		s.play(t, phase)
	}
	for name, key := range edited {
		if systemConfigMap(t, s, name).Data[key] == "" {
			t.Errorf("no ConfigMap %s", name)
		}
	}
	if len(api.mark.Taints) != 1 {
		t.Errorf("taints %v", api.mark.Taints)
	}
}

// saidOnce checks that each line was printed exactly once.
func (s *stage) saidOnce(t *testing.T, lines ...line) {
	t.Helper()
	once(t, s.said.String(), lines...)
}

// unbound is an API that refuses administrators everything until they have their role.
type unbound struct {
	*marked
	bound atomic.Bool
}

func (u *unbound) EnsureAdmin(ctx context.Context) error {
	u.bound.Store(true)
	return u.marked.EnsureAdmin(ctx)
}

func (u *unbound) Compare(ctx context.Context, obj cluster.Object) (cluster.Difference, error) {
	if !u.bound.Load() {
		return cluster.Difference{}, errors.New("forbidden")
	}
	return u.marked.Compare(ctx, obj)
}

func (u *unbound) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if !u.bound.Load() {
		return false, errors.New("forbidden")
	}
	return u.marked.Get(ctx, obj)
}

func systemConfigMap(t *testing.T, s *stage, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	if _, err := s.api.Get(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return cm
}
