// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// upgrade runs the phase twice; the second run must write nothing.
func upgrade(t *testing.T, s *phasetest.AddonStage, wantDone ...string) {
	t.Helper()
	s.Play(t, Upgrade(WhenAllUpgraded))
	slices.Sort(s.Done) // the two add-ons are upgraded side by side
	if diff := cmp.Diff(wantDone, phasetest.Without(s.Done, "ensure ClusterRoleBinding kubeadm:cluster-admins")); diff != "" {
		t.Errorf("did, -want +got:\n%s", diff)
	}
	said := s.Said.String()
	s.Done = nil
	s.Play(t, Upgrade(WhenAllUpgraded))
	if len(s.Done) > 0 {
		t.Errorf("a second run did %q", s.Done)
	}
	s.Said.Reset()
	s.Said.WriteString(said)
}

// TestUpgradeAddonsEqualAFreshInit: unedited objects become as init of the new version makes them.
func TestUpgradeAddonsEqualAFreshInit(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	upgrade(t, s, phasetest.WroteMode, phasetest.WroteProxy, phasetest.WroteDNS)
	fresh := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	for _, objects := range []func(*config.Node, config.PatchSet) ([]manifests.Object, error){manifests.CoreDNS, manifests.KubeProxy} {
		objs, err := objects(fresh.Config, config.PatchSet{})
		phasetest.Fatal(t, err)
		for _, want := range objs {
			got := want.DeepCopyObject().(cluster.Object)
			_, err := s.API.Get(t.Context(), got)
			phasetest.Fatal(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%T %s, -init +upgrade:\n%s", want, want.GetName(), diff)
			}
		}
	}
	s.SaidOnce(t, phasetest.Line{"Upgrading CoreDNS to " + phasetest.NewDNS}, phasetest.Line{"Upgrading kube-proxy to registry.k8s.io/kube-proxy:v1.37.2"},
		phasetest.Line{"`kubectl -n kube-system rollout status deployment/coredns`"}, phasetest.Line{"`kubectl -n kube-system rollout status daemonset/kube-proxy`"})
	if strings.Contains(s.Said.String(), "WARNING") {
		t.Errorf("warnings:\n%s", s.Said.String())
	}
}

// TestUpgradeAddonsKeepEdits: replicas and every edited field stay; the image follows the release.
func TestUpgradeAddonsKeepEdits(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	d, ds := s.Deployment(t), s.DaemonSet(t)
	*d.Spec.Replicas = 5
	pod := &d.Spec.Template.Spec
	pod.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("300Mi")
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Affinity, pod.NodeSelector["disk"] = nil, "ssd"
	ds.Spec.Template.Spec.Containers[0].Command = []string{"/usr/local/bin/kube-proxy", "--v=4"}
	s.Edited(t, d, ds)
	upgrade(t, s, phasetest.WroteMode, phasetest.WroteProxy, phasetest.WroteDNS)

	want := d.DeepCopy()
	want.Spec.Template.Spec.Containers[0].Image = phasetest.NewDNS
	if diff := cmp.Diff(want, s.Deployment(t)); diff != "" {
		t.Errorf("Deployment, -want +got:\n%s", diff)
	}
	if got := s.DaemonSet(t).Spec.Template.Spec.Containers[0].Command[1]; got != "--v=4" {
		t.Errorf("the flag became %s", got)
	}
	s.SaidOnce(t, phasetest.Line{"keeping Deployment kube-system/coredns", ": spec.template.spec.affinity, " +
		"spec.template.spec.containers[coredns].resources.limits.memory, spec.template.spec.tolerations\n"},
		phasetest.Line{"keeping DaemonSet kube-system/kube-proxy", ": spec.template.spec.containers[kube-proxy].command\n"},
		phasetest.Line{"--diff", "`slipway init phase addon coredns`", "--config"})
}

// TestUpgradeCoreDNSImages: an image from the release's repository follows the release and dns.imageTag, any other image stays.
func TestUpgradeCoreDNSImages(t *testing.T) {
	const pinned = "dns: {imageTag: v1.14.4}\n"
	for name, c := range map[string]struct {
		documents, image, want string
		said                   phasetest.Line
	}{
		"the release's":            {image: phasetest.OldDNS, want: phasetest.NewDNS},
		"a digest":                 {image: phasetest.NewDNS + "@sha256:0123", want: phasetest.NewDNS},
		"pinned":                   {documents: pinned, image: phasetest.OldDNS, want: "registry.k8s.io/coredns/coredns:v1.14.4"},
		"pinned to an older":       {documents: pinned, image: phasetest.NewDNS, want: "registry.k8s.io/coredns/coredns:v1.14.4"},
		"a newer, by hand":         {image: "registry.k8s.io/coredns/coredns:v1.14.7", want: "registry.k8s.io/coredns/coredns:v1.14.7"},
		"a mirror was configured":  {documents: "imageRepository: mirror.example/k8s\n", image: phasetest.OldDNS, want: "mirror.example/k8s/coredns:v1.14.6"},
		"an operator's repository": {image: "example.com/dns:v9", want: "example.com/dns:v9", said: phasetest.Line{"keeping Deployment kube-system/coredns", ": spec.template.spec.containers[coredns].image\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, c.documents)
			d := s.Deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = c.image
			s.Edited(t, d)
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			if got := s.Deployment(t).Spec.Template.Spec.Containers[0].Image; got != c.want {
				t.Errorf("image %s, want %s", got, c.want)
			}
			if c.said != nil {
				s.SaidOnce(t, c.said)
			}
		})
	}
}
