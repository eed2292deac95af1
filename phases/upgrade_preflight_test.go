// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// latePods is an API that has the Pods of the nodes from the given look on.
type latePods struct {
	*planes
	from, looks int
}

func (l *latePods) Pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	if l.looks++; l.looks < l.from {
		return nil, nil
	}
	return l.planes.Pods(ctx, namespace, selector)
}

// TestServersOfWorkers: the mirror Pod of a worker, with whatever image, keeps neither the add-ons nor the upgrade of a control plane
// waiting. Findings name it.
func TestServersOfWorkers(t *testing.T) {
	s := newAddonStage(t, "")
	s.planes.nodes = append(s.planes.nodes, *cluster.NewNode("w-1"))
	for _, image := range []string{"registry.k8s.io/kube-apiserver:v1.20.0", "evil"} {
		s.planes.pods = append(s.planes.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-w-1", Labels: map[string]string{"component": "kube-apiserver"}},
			Spec: corev1.PodSpec{NodeName: "w-1", Containers: []corev1.Container{{Name: "kube-apiserver", Image: image}}}})
	}
	if behind, err := controlPlanesBehind(t.Context(), s.Env); err != nil || len(behind) > 0 {
		t.Errorf("behind: %q, %v", behind, err)
	}
	fatal(t, s.api.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.4\n")))
	state, err := upgrading.Look(t.Context(), s.Cluster)
	fatal(t, err)
	for _, n := range state.Nodes {
		if n.ControlPlane != (n.Name == "cp-1") {
			t.Errorf("%+v", n)
		}
	}
	checkFindings(t, strayPods(state), foundAs{name: "warning ControlPlaneLabel", facts: []string{"node w-1", "kube-apiserver-w-1", cluster.LabelControlPlane}})

}

// TestUnmarkedControlPlane: a host with the static Pod of an API server knows that it is a control plane, though somebody has taken
// the label off its Node. A worker beside it doesn't become one.
func TestUnmarkedControlPlane(t *testing.T) {
	s := newAddonStage(t, "")
	s.planes.nodes[0].Labels = nil
	s.planes.pods[0].Labels = map[string]string{"component": "kube-apiserver"}
	s.planes.nodes = append(s.planes.nodes, *cluster.NewNode("w-1"))
	s.planes.pods = append(s.planes.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-w-1", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec: corev1.PodSpec{NodeName: "w-1", Containers: []corev1.Container{{Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.20.0"}}}})
	fatal(t, s.api.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.4\n")))
	checkFindings(t, unmarkedHere(s.Env, s.planes.nodes), foundAs{name: "warning ControlPlaneLabel", facts: []string{"node cp-1", cluster.LabelControlPlane}})
	state, err := lookFromHere(t.Context(), s.Env)
	fatal(t, err)
	for _, n := range state.Nodes {
		if own := n.Name == "cp-1"; n.ControlPlane != own || (n.APIServer != "") != own {
			t.Errorf("%+v", n)
		}
	}
	checkFindings(t, strayPods(state), foundAs{name: "warning ControlPlaneLabel", facts: []string{"node w-1", "kube-apiserver-w-1", cluster.LabelControlPlane}})
	servers, err := mirroredServers(t.Context(), s.Env)
	if err != nil || len(servers) != 1 || servers["cp-1"] == nil {
		t.Errorf("API servers: %v, %v", servers, err)
	}
}

// TestAwaitServerPods: the kubelet of a new control plane needs a moment to make them. One that will never be there is
// for the check of the versions.
func TestAwaitServerPods(t *testing.T) {
	waiting := func(node string) line { return line{"Pod", "API server", "of " + node + ", ", "1m0s\n"} }
	for name, test := range map[string]struct {
		from        int
		dead        string
		interrupted time.Duration // after this time
		took        time.Duration
		said        line // nothing else
		fails       string
	}{
		"all there": {},
		"late":      {from: 4, took: 3 * readyInterval, said: waiting("cp-1")},
		"never":     {dead: "cp-2", took: time.Minute, said: waiting("cp-2")},
		"interrupted": {dead: "cp-2", interrupted: 5 * time.Second, took: 5 * time.Second, said: waiting("cp-2"),
			fails: "interrupt signal received"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			if test.dead != "" {
				s.planes.server(test.dead, "")
			}
			s.Cluster = &latePods{planes: s.planes, from: test.from}
			s.said.Reset()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.interrupted > 0 {
					time.AfterFunc(test.interrupted, func() { cancel(errors.New(test.fails)) })
				}
				began := time.Now()
				err := awaitServerPods(ctx, s.Env)
				if took := time.Since(began); took != test.took || message(err) != test.fails {
					t.Errorf("it took %s, want %s, and returned %v, want %q", took, test.took, err, test.fails)
				}
				if lines := strings.Count(s.said.String(), "\n"); lines != min(len(test.said), 1) {
					t.Errorf("it said %q", s.said.String())
				}
				if test.said != nil {
					s.saidOnce(t, test.said)
				}
			})
		})
	}
}
