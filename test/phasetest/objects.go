// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
)

// Edited are ConfigMaps that administrators edit, by name and key.
var Edited = map[string]string{"coredns": "Corefile", "kube-proxy": "config.conf", "kubelet-config": "kubelet"}

func SystemConfigMap(t *testing.T, s *Stage, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	if _, err := s.API.Get(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return cm
}

// PodOf returns a Pod with a controller of the given kind; an empty kind means none.
func PodOf(name, kind string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", Controller: ptr.To(true)}}
	}
	return p
}

const APIServerManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// Marked is an API that records a node's mark, or the wait for its report.
type Marked struct {
	*cluster.Plan
	Name     string
	Mark     cluster.Mark
	Since    time.Time
	Deadline time.Duration
	Err      error
}

func (m *Marked) MarkNode(ctx context.Context, name string, mark cluster.Mark) error {
	m.Name, m.Mark = name, mark
	if end, ok := ctx.Deadline(); ok {
		m.Deadline = time.Until(end)
	}
	return m.Err
}

func (m *Marked) AwaitReport(_ context.Context, name string, since time.Time) error {
	m.Name, m.Since = name, since
	return m.Err
}

// OwnPeer is the URL at which other members find the stage's etcd.
const OwnPeer = "https://192.0.2.11:2380"

// AskedEtcd has keys, or doesn't answer.
type AskedEtcd struct {
	etcd.Etcd
	Keys []string
	Err  error
}

func (e AskedEtcd) Has(_ context.Context, key string) (bool, error) {
	return slices.Contains(e.Keys, key), e.Err
}

func (e AskedEtcd) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{{Member: etcd.Member{Name: "cp-1", PeerURL: OwnPeer}, Answers: true}}, e.Err
}

// OneNode is an API with one Node, the Pods on it, and CoreDNS's Pods on all nodes.
type OneNode struct {
	*cluster.Plan
	Node    *corev1.Node
	Running []corev1.Pod
	DNS     []corev1.Pod
	Passes  func()
}

func (o *OneNode) Pods(context.Context, string, string) ([]corev1.Pod, error) { return o.DNS, nil }

// AwaitNode looks once, or again after that if time passes.
func (o *OneNode) AwaitNode(_ context.Context, _ string, check func(*corev1.Node, []corev1.Pod) error) error {
	err := check(o.Node, o.Running)
	if o.Passes != nil {
		o.Passes()
		err = check(o.Node, o.Running)
	}
	return err
}

func ReadyNode(status corev1.ConditionStatus, message string) *corev1.Node {
	n := cluster.NewNode("cp-1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}}
	return n
}

// APod returns a Pod on a node. kind has words that describe it.
func APod(name, kind string) corev1.Pod {
	p := corev1.Pod{}
	p.Name, p.Namespace, p.Labels = name, "kube-system", map[string]string{"k8s-app": name}
	if strings.Contains(kind, "static") {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if strings.Contains(kind, "critical") {
		p.Spec.PriorityClassName = "system-node-critical"
	}
	p.Spec.HostNetwork = strings.Contains(kind, "host")
	status := corev1.ConditionFalse
	if strings.Contains(kind, "ready") {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	p.Status.PodIP = "10.244.0.2"
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no network"}}
	if strings.Contains(kind, "ready") || strings.Contains(kind, "runs") {
		state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: state}}
	return p
}
