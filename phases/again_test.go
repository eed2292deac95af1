// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
)

// edited are ConfigMaps that administrators change, by name and key.
var edited = map[string]string{"coredns": "Corefile", "kube-proxy": "config.conf", "kubelet-config": "kubelet"}

// TestAgainKeepsWhatWasEdited: init on a control plane that works undoes nothing
// that an administrator did, and a phase's own command does.
func TestAgainKeepsWhatWasEdited(t *testing.T) {
	s := newStage(t, initDocument+clusterDocument)
	workflow := []Phase{uploadConfig(), markControlPlane(), addon()}
	s.play(t, workflow...)
	for name, key := range edited {
		cm := systemConfigMap(t, s, name)
		cm.Data[key] = "edited"
		if err := s.api.Ensure(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	api := &marked{Plan: s.api}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", Labels: map[string]string{labelControlPlane: ""}}}
	if err := s.api.Ensure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s.Cluster = api

	s.Again = true
	s.play(t, workflow...)
	for name, key := range edited {
		if got := systemConfigMap(t, s, name).Data[key]; got != "edited" {
			t.Errorf("ConfigMap %s was written anew:\n%s", name, got)
		}
	}
	if len(api.mark.Taints) > 0 {
		t.Errorf("taints that were taken off are back: %v", api.mark.Taints)
	}

	s.Again = false
	s.play(t, workflow...)
	for name, key := range edited {
		if systemConfigMap(t, s, name).Data[key] == "edited" {
			t.Errorf("ConfigMap %s was not written by the phase's own command", name)
		}
	}
	if len(api.mark.Taints) != 1 {
		t.Errorf("the phase's own command set the taints %v", api.mark.Taints)
	}
}

// TestAgainFinishes: what a run that was cut off has not made is made.
func TestAgainFinishes(t *testing.T) {
	s := newStage(t, initDocument+clusterDocument)
	s.Again = true
	api := &marked{Plan: s.api}
	for _, phase := range []Phase{uploadConfig(), markControlPlane(), addon()} {
		s.Cluster = &unbound{marked: api} // whichever comes first
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

// unbound is an API that administrators may ask nothing before they have got
// their role.
type unbound struct {
	*marked
	bound atomic.Bool
}

func (u *unbound) EnsureAdmin(ctx context.Context) error {
	u.bound.Store(true)
	return u.marked.EnsureAdmin(ctx)
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
