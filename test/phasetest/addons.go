// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func (s *AddonStage) CheckDone(t *testing.T, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, Without(s.Done, "ensure ClusterRoleBinding kubeadm:cluster-admins")); diff != "" {
		t.Errorf("did, -want +got:\n%s", diff)
	}
}

// WithFlannel puts flannel into the stage's cluster, as an earlier release installed it.
func (s *AddonStage) WithFlannel(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	s.Config.Cluster.Networking.PodSubnet = "10.244.0.0/16"
	objs, err := manifests.Flannel(s.Config, config.PatchSet{})
	Fatal(t, err)
	var d *appsv1.DaemonSet
	for _, obj := range objs {
		if set, is := obj.(*appsv1.DaemonSet); is {
			d = set
			spec := &d.Spec.Template.Spec
			spec.InitContainers[0].Image = "ghcr.io/flannel-io/flannel-cni-plugin:v1.8.0-flannel1"
			spec.InitContainers[1].Image, spec.InitContainers[2].Image = "ghcr.io/flannel-io/flannel:v0.27.0", "ghcr.io/flannel-io/flannel:v0.27.0"
		}
		Fatal(t, s.API.Ensure(t.Context(), obj))
	}
	s.Done = nil
	return d
}

func (s *AddonStage) Flannel(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{}
	d.Namespace, d.Name = manifests.FlannelNamespace, manifests.FlannelDaemonSet
	_, err := s.API.Get(t.Context(), d)
	Fatal(t, err)
	return d
}

// Planes is an API with the Nodes and API servers of control planes.
type Planes struct {
	*cluster.Plan
	Known   []corev1.Node
	Running []corev1.Pod
	// Left is the number of changes that succeed before the run is interrupted; negative for all.
	Left int
	mu   sync.Mutex // guards Left: both add-ons are upgraded side by side
}

var errInterrupted = errors.New("interrupted")

func (p *Planes) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	return p.Plan.Update(ctx, obj, func() (bool, error) {
		changed, err := change()
		p.mu.Lock()
		defer p.mu.Unlock()
		if changed && p.Left == 0 {
			return false, errInterrupted
		}
		if changed {
			p.Left--
		}
		return changed, err
	})
}

func (p *Planes) Nodes(context.Context) ([]corev1.Node, error) { return p.Known, nil }

func (p *Planes) Pods(context.Context, string, string) ([]corev1.Pod, error) { return p.Running, nil }

// Server adds a control plane whose API server has an image; without an image, it has no Pod.
func (p *Planes) Server(name, image string) {
	object := cluster.NewNode(name)
	object.Labels = map[string]string{cluster.LabelControlPlane: ""}
	p.Known = append(p.Known, *object)
	if image != "" {
		p.Running = append(p.Running, corev1.Pod{Spec: corev1.PodSpec{
			NodeName: name, Containers: []corev1.Container{{Name: "kube-apiserver", Image: image}},
		}})
	}
}

// AddonStage is a cluster upgraded from v1.36.4, with all control planes at v1.37.2 and an earlier kubeadm's add-ons.
type AddonStage struct {
	*Stage
	Planes *Planes
}

const (
	OldDNS = "registry.k8s.io/coredns/coredns:v1.14.2"
	NewDNS = "registry.k8s.io/coredns/coredns:v1.14.6"
)

func NewAddonStage(t *testing.T, documents string) *AddonStage {
	t.Helper()
	s := &AddonStage{Stage: NewStage(t, fixture.InitDocument+fixture.ClusterDocument+documents)}
	s.Config.Upgrade = &config.Upgrade{From: "v1.36.4", Version: "v1.37.2", First: true}
	s.Planes = &Planes{Plan: s.API, Left: -1}
	s.Planes.Server("cp-1", "registry.k8s.io/kube-apiserver:v1.37.2")
	s.Cluster = s.Planes
	older := s.Config.GeneratedFor("v1.35.8") // without kube-proxy's mode
	for _, objects := range []func(*config.Node, config.PatchSet) ([]manifests.Object, error){manifests.CoreDNS, manifests.KubeProxy} {
		objs, err := objects(older, config.PatchSet{})
		Fatal(t, err)
		for _, obj := range objs {
			if ds, is := obj.(*appsv1.DaemonSet); is {
				ds.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/kube-proxy:v1.36.4"
			}
			Fatal(t, s.API.Ensure(t.Context(), obj))
		}
	}
	s.Done = nil
	return s
}

func (s *AddonStage) Deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}}
	_, err := s.API.Get(t.Context(), d)
	Fatal(t, err)
	return d
}

func (s *AddonStage) DaemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}}
	_, err := s.API.Get(t.Context(), d)
	Fatal(t, err)
	return d
}

// Edited puts objects written by others into the cluster.
func (s *AddonStage) Edited(t *testing.T, objs ...cluster.Object) {
	t.Helper()
	for _, obj := range objs {
		Fatal(t, s.API.EnsureAbsent(t.Context(), obj)) // replaced, not merged
		Fatal(t, s.API.Ensure(t.Context(), obj))
	}
	s.Done = nil
}

func (s *AddonStage) Corefile(t *testing.T, old, new string) string {
	t.Helper()
	cm := SystemConfigMap(t, s.Stage, "coredns")
	text := strings.Replace(cm.Data["Corefile"], old, new, 1)
	if text == cm.Data["Corefile"] {
		t.Fatalf("the Corefile has no %q", old)
	}
	cm.Data["Corefile"] = text
	s.Edited(t, cm)
	return text
}

func Without(list []string, leftOut string) (out []string) {
	for _, item := range list {
		if item != leftOut {
			out = append(out, item)
		}
	}
	return out
}

const (
	WroteDNS   = "ensure Deployment coredns"
	WroteFile  = "ensure ConfigMap coredns"
	WroteProxy = "ensure DaemonSet kube-proxy"
	WroteMode  = "ensure ConfigMap kube-proxy"
)
