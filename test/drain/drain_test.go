// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package drain compares Slipway's choice of Pods to evict from a node with `kubectl drain`, whose library is too large and
// starts too slowly for the program. It's a separate module, so that the product needs none of it.
package drain

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/upgrade"
)

const node = "worker-1"

// pods returns all combinations that the choice depends on. Terminating Pods are left out: kubectl refuses them like the others,
// Slipway waits for them.
func pods() (list []corev1.Pod) {
	for _, kind := range []string{"", "ReplicaSet", "DaemonSet", "Job"} {
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed} {
			for _, static := range []bool{false, true} {
				for _, emptyDir := range []bool{false, true} {
					p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%03d", len(list))}}
					p.UID, p.Spec.NodeName, p.Status.Phase = types.UID(p.Name), node, phase
					if kind != "" {
						p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", Controller: ptr.To(true)}}
					}
					if static {
						p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
					}
					if emptyDir {
						p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
					}
					list = append(list, p)
				}
			}
		}
	}
	return list
}

// decision says what happens to a Pod.
type decision struct{ Evicted, Refused bool }

func TestSameChoice(t *testing.T) {
	for _, force := range []bool{false, true} {
		evicted := 0
		for _, pod := range pods() {
			ours, theirs := slipway(t, pod, force), kubectl(pod, force)
			if diff := cmp.Diff(theirs, ours); diff != "" {
				t.Errorf("force: %v, %+v (-kubectl +slipway):\n%s", force, pod, diff)
			}
			if ours.Evicted {
				evicted++
			}
		}
		if evicted == 0 || evicted == len(pods()) {
			t.Errorf("%d of %d Pods are evicted", evicted, len(pods()))
		}
	}
}

func kubectl(pod corev1.Pod, force bool) decision {
	owner := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "owner"}}
	helper := drain.Helper{
		Ctx: context.Background(), Client: fake.NewClientset(&pod, owner), IgnoreAllDaemonSets: true, Force: force, DeleteEmptyDirData: force,
	}
	list, errs := helper.GetPodsForDeletion(node)
	return decision{Evicted: len(errs) == 0 && len(list.Pods()) > 0, Refused: len(errs) > 0}
}

// lonely is an API with one Pod.
type lonely struct {
	*cluster.Plan
	pod     corev1.Pod
	evicted bool
}

func (l *lonely) PodsOn(context.Context, string) ([]corev1.Pod, error) {
	if l.evicted {
		return nil, nil
	}
	return []corev1.Pod{l.pod}, nil
}

func (l *lonely) Evict(context.Context, *corev1.Pod) error {
	l.evicted = true
	return nil
}

func slipway(t *testing.T, pod corev1.Pod, force bool) decision {
	t.Helper()
	api := &lonely{Plan: cluster.NewPlan(func(cluster.Action) {}, nil), pod: pod}
	if err := api.Ensure(t.Context(), cluster.NewNode(node)); err != nil {
		t.Fatal(err)
	}
	n := &config.Node{Upgrade: &config.Upgrade{Drain: &config.Drain{Timeout: time.Minute, Force: force}}}
	n.Name = node
	workflow := upgrade.Node()
	i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == "drain" })
	env := &step.Env{Config: n, Cluster: api, UI: ui.NewLines(&bytes.Buffer{}, &bytes.Buffer{})}
	err := step.Run(t.Context(), env, workflow[i:i+1], step.Options{})
	if err != nil && (!strings.Contains(fault.Remedy(err), "--drain-force") || !strings.Contains(err.Error(), pod.Namespace+"/"+pod.Name)) {
		t.Fatal(err)
	}
	return decision{Evicted: api.evicted, Refused: err != nil}
}
