// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// planes is an API with the Nodes and API servers of control planes.
type planes struct {
	*cluster.Plan
	nodes []corev1.Node
	pods  []corev1.Pod
	// left is how many changes are made before the run is interrupted; negative for all.
	left int
	mu   sync.Mutex // of left: both add-ons are upgraded side by side
}

var errInterrupted = errors.New("interrupted")

func (p *planes) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	return p.Plan.Update(ctx, obj, func() (bool, error) {
		changed, err := change()
		p.mu.Lock()
		defer p.mu.Unlock()
		if changed && p.left == 0 {
			return false, errInterrupted
		}
		if changed {
			p.left--
		}
		return changed, err
	})
}

func (p *planes) Nodes(context.Context) ([]corev1.Node, error)               { return p.nodes, nil }
func (p *planes) Pods(context.Context, string, string) ([]corev1.Pod, error) { return p.pods, nil }

// server adds a control plane whose API server has an image; without one, it has no Pod.
func (p *planes) server(name, image string) {
	object := cluster.NewNode(name)
	object.Labels = map[string]string{cluster.LabelControlPlane: ""}
	p.nodes = append(p.nodes, *object)
	if image != "" {
		p.pods = append(p.pods, corev1.Pod{Spec: corev1.PodSpec{
			NodeName: name, Containers: []corev1.Container{{Name: "kube-apiserver", Image: image}},
		}})
	}
}

// addonStage is a cluster that was v1.36.4 and whose control planes are v1.37.2, with the add-ons as an earlier version of
// kubeadm has made them.
type addonStage struct {
	*stage
	planes *planes
}

const (
	oldDNS = "registry.k8s.io/coredns/coredns:v1.14.2"
	newDNS = "registry.k8s.io/coredns/coredns:v1.14.6"
)

func newAddonStage(t *testing.T, documents string) *addonStage {
	t.Helper()
	s := &addonStage{stage: newStage(t, fixture.InitDocument+fixture.ClusterDocument+documents)}
	s.Config.Upgrade = &config.Upgrade{From: "v1.36.4", Version: "v1.37.2", First: true}
	s.planes = &planes{Plan: s.api, left: -1}
	s.planes.server("cp-1", "registry.k8s.io/kube-apiserver:v1.37.2")
	s.Cluster = s.planes
	older := s.Config.GeneratedFor("v1.35.8") // without the mode of kube-proxy
	for _, objects := range []func(*config.Node, config.PatchSet) ([]manifests.Object, error){manifests.CoreDNS, manifests.KubeProxy} {
		objs, err := objects(older, config.PatchSet{})
		fatal(t, err)
		for _, obj := range objs {
			if ds, is := obj.(*appsv1.DaemonSet); is {
				ds.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/kube-proxy:v1.36.4"
			}
			fatal(t, s.api.Ensure(t.Context(), obj))
		}
	}
	s.done = nil
	return s
}

func (s *addonStage) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}}
	_, err := s.api.Get(t.Context(), d)
	fatal(t, err)
	return d
}

func (s *addonStage) daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}}
	_, err := s.api.Get(t.Context(), d)
	fatal(t, err)
	return d
}

// edited makes the cluster hold objects that somebody else wrote.
func (s *addonStage) edited(t *testing.T, objs ...cluster.Object) {
	t.Helper()
	for _, obj := range objs {
		fatal(t, s.api.EnsureAbsent(t.Context(), obj)) // replaced, not merged
		fatal(t, s.api.Ensure(t.Context(), obj))
	}
	s.done = nil
}

// corefile edits the Corefile, and returns it.
func (s *addonStage) corefile(t *testing.T, old, new string) string {
	t.Helper()
	cm := systemConfigMap(t, s.stage, "coredns")
	text := strings.Replace(cm.Data["Corefile"], old, new, 1)
	if text == cm.Data["Corefile"] {
		t.Fatalf("the Corefile has no %q", old)
	}
	cm.Data["Corefile"] = text
	s.edited(t, cm)
	return text
}

// upgrade runs the phase, and then again, which must write nothing.
func (s *addonStage) upgrade(t *testing.T, wantDone ...string) {
	t.Helper()
	s.play(t, upgradeAddon(onceUpgraded))
	slices.Sort(s.done) // the two add-ons are upgraded side by side
	if diff := cmp.Diff(wantDone, without(s.done, "ensure ClusterRoleBinding kubeadm:cluster-admins")); diff != "" {
		t.Errorf("did, -want +got:\n%s", diff)
	}
	said := s.said.String()
	s.done = nil
	s.play(t, upgradeAddon(onceUpgraded))
	if len(s.done) > 0 {
		t.Errorf("a second run did %q", s.done)
	}
	s.said.Reset()
	s.said.WriteString(said)
}

func without(list []string, leftOut string) (out []string) {
	for _, item := range list {
		if item != leftOut {
			out = append(out, item)
		}
	}
	return out
}

const (
	wroteDNS   = "ensure Deployment coredns"
	wroteFile  = "ensure ConfigMap coredns"
	wroteProxy = "ensure DaemonSet kube-proxy"
	wroteMode  = "ensure ConfigMap kube-proxy"
)

// TestUpgradeAddonsEqualAFreshInit: what nobody has edited becomes what init of the new version makes.
func TestUpgradeAddonsEqualAFreshInit(t *testing.T) {
	s := newAddonStage(t, "")
	s.upgrade(t, wroteMode, wroteProxy, wroteDNS)
	fresh := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	for _, objects := range []func(*config.Node, config.PatchSet) ([]manifests.Object, error){manifests.CoreDNS, manifests.KubeProxy} {
		objs, err := objects(fresh.Config, config.PatchSet{})
		fatal(t, err)
		for _, want := range objs {
			got := want.DeepCopyObject().(cluster.Object)
			_, err := s.api.Get(t.Context(), got)
			fatal(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%T %s, -init +upgrade:\n%s", want, want.GetName(), diff)
			}
		}
	}
	s.saidOnce(t, line{"Upgrading CoreDNS to " + newDNS}, line{"Upgrading kube-proxy to registry.k8s.io/kube-proxy:v1.37.2"},
		line{"`kubectl -n kube-system rollout status deployment/coredns`"}, line{"`kubectl -n kube-system rollout status daemonset/kube-proxy`"})
	if strings.Contains(s.said.String(), "WARNING") {
		t.Errorf("warnings:\n%s", s.said.String())
	}
}

// TestUpgradeAddonsKeepEdits: replicas, and every field that an operator has edited, stay; the image follows the release.
func TestUpgradeAddonsKeepEdits(t *testing.T) {
	s := newAddonStage(t, "")
	d, ds := s.deployment(t), s.daemonSet(t)
	*d.Spec.Replicas = 5
	pod := &d.Spec.Template.Spec
	pod.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("300Mi")
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Affinity, pod.NodeSelector["disk"] = nil, "ssd"
	ds.Spec.Template.Spec.Containers[0].Command = []string{"/usr/local/bin/kube-proxy", "--v=4"}
	s.edited(t, d, ds)
	s.upgrade(t, wroteMode, wroteProxy, wroteDNS)

	want := d.DeepCopy()
	want.Spec.Template.Spec.Containers[0].Image = newDNS
	if diff := cmp.Diff(want, s.deployment(t)); diff != "" {
		t.Errorf("Deployment, -want +got:\n%s", diff)
	}
	if got := s.daemonSet(t).Spec.Template.Spec.Containers[0].Command[1]; got != "--v=4" {
		t.Errorf("the flag became %s", got)
	}
	s.saidOnce(t, line{"keeping Deployment kube-system/coredns", ": spec.template.spec.affinity, " +
		"spec.template.spec.containers[coredns].resources.limits.memory, spec.template.spec.tolerations\n"},
		line{"keeping DaemonSet kube-system/kube-proxy", ": spec.template.spec.containers[kube-proxy].command\n"},
		line{"`slipway upgrade apply` with --diff", "`slipway init phase addon coredns`"})
}

// TestUpgradeCoreDNSImages: an image of the release's repository follows the release and dns.imageTag, any other one stays.
func TestUpgradeCoreDNSImages(t *testing.T) {
	const pinned = "dns: {imageTag: v1.14.4}\n"
	for name, c := range map[string]struct {
		documents, image, want string
		said                   line
	}{
		"the release's":            {image: oldDNS, want: newDNS},
		"a digest":                 {image: newDNS + "@sha256:0123", want: newDNS},
		"pinned":                   {documents: pinned, image: oldDNS, want: "registry.k8s.io/coredns/coredns:v1.14.4"},
		"a mirror was configured":  {documents: "imageRepository: mirror.example/k8s\n", image: oldDNS, want: "mirror.example/k8s/coredns:v1.14.6"},
		"an operator's repository": {image: "example.com/dns:v9", want: "example.com/dns:v9", said: line{"keeping Deployment kube-system/coredns", ": spec.template.spec.containers[coredns].image\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, c.documents)
			d := s.deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = c.image
			s.edited(t, d)
			s.play(t, upgradeAddon(onceUpgraded).Children[0])
			if got := s.deployment(t).Spec.Template.Spec.Containers[0].Image; got != c.want {
				t.Errorf("image %s, want %s", got, c.want)
			}
			if c.said != nil {
				s.saidOnce(t, c.said)
			}
		})
	}
}
