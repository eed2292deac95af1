// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestAgainKeepsWhatWasEdited: init on a working control plane undoes nothing an administrator did, and creates missing objects.
// A single phase's command writes its configuration, except for an edited Corefile. Both report this once per object.
func TestAgainKeepsWhatWasEdited(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	workflow := []step.Phase{node.UploadConfig(), markControlPlane(), addon.Install()}
	s.Play(t, workflow...)
	s.Edit(t)
	api := &phasetest.Marked{Plan: s.API}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1", Labels: map[string]string{cluster.LabelControlPlane: ""}}}
	if err := s.API.Ensure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s.Cluster = api

	s.Rerun, s.Done = true, nil
	s.Said.Reset()
	s.Play(t, workflow...)
	if want := []string{"ensure Deployment coredns"}; !slices.Equal(s.Done, want) {
		t.Errorf("did %q, want %q", s.Done, want)
	}
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/coredns", ": data.Corefile\n"},
		phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", ": data.config.conf\n"},
		phasetest.Line{"[WARNING]", "`slipway init phase addon kube-proxy`", "(--config)\n"},
		phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/kubelet-config", ": data.kubelet\n"},
		phasetest.Line{"[WARNING]", "keeping Node cp-1", "label node.kubernetes.io/exclude-from-external-load-balancers, taint node-role.kubernetes.io/control-plane:NoSchedule\n"},
		phasetest.Line{"[WARNING]", "`slipway init phase mark-control-plane`", "(--config)\n"})
	s.ShowsRun(t, "init-again-objects", workflow...)
	for name, key := range phasetest.Edited {
		if got := phasetest.SystemConfigMap(t, s, name).Data[key]; got != "edited" {
			t.Errorf("ConfigMap %s was written again:\n%s", name, got)
		}
	}
	if len(api.Mark.Taints) > 0 {
		t.Errorf("removed taints are back: %v", api.Mark.Taints)
	}

	if len(api.Mark.Labels) > 0 {
		t.Errorf("removed labels are back: %v", api.Mark.Labels)
	}

	s.Rerun = false
	s.Said.Reset()
	s.Play(t, workflow...)
	for name, key := range phasetest.Edited {
		if got := phasetest.SystemConfigMap(t, s, name).Data[key]; (got == "edited") != (name == "coredns") {
			t.Errorf("ConfigMap %s after the phase's own command:\n%s", name, got)
		}
	}
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/coredns", ": data.Corefile\n"}, phasetest.Line{"replacing", "ConfigMap kube-system/kube-proxy: data.config.conf"})
	if len(api.Mark.Taints) != 1 {
		t.Errorf("the phase's own command set the taints %v", api.Mark.Taints)
	}
}

// TestAgainFinishes: init creates everything an interrupted run didn't.
func TestAgainFinishes(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Rerun = true
	api := &phasetest.Marked{Plan: s.API}
	for _, phase := range []step.Phase{node.UploadConfig(), markControlPlane(), addon.Install()} {
		s.Cluster = &unbound{Marked: api} // whichever phase comes first
		s.Play(t, phase)
	}
	for name, key := range phasetest.Edited {
		if phasetest.SystemConfigMap(t, s, name).Data[key] == "" {
			t.Errorf("no ConfigMap %s", name)
		}
	}
	if len(api.Mark.Taints) != 1 {
		t.Errorf("taints %v", api.Mark.Taints)
	}
}

// unbound is an API that refuses administrators everything until they have their role.
type unbound struct {
	*phasetest.Marked
	bound atomic.Bool
}

func (u *unbound) EnsureAdmin(ctx context.Context) error {
	u.bound.Store(true)
	return u.Marked.EnsureAdmin(ctx)
}

func (u *unbound) Compare(ctx context.Context, obj cluster.Object) (cluster.Difference, error) {
	if !u.bound.Load() {
		return cluster.Difference{}, errors.New("forbidden")
	}
	return u.Marked.Compare(ctx, obj)
}

func (u *unbound) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if !u.bound.Load() {
		return false, errors.New("forbidden")
	}
	return u.Marked.Get(ctx, obj)
}
