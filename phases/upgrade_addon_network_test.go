// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// withFlannel puts flannel into the stage's cluster, as an earlier release has installed it.
func (s *addonStage) withFlannel(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	s.Config.Cluster.Networking.PodSubnet = "10.244.0.0/16"
	objs, err := manifests.Flannel(s.Config, config.PatchSet{})
	fatal(t, err)
	var d *appsv1.DaemonSet
	for _, obj := range objs {
		if set, is := obj.(*appsv1.DaemonSet); is {
			d = set
			spec := &d.Spec.Template.Spec
			spec.InitContainers[0].Image = "ghcr.io/flannel-io/flannel-cni-plugin:v1.8.0-flannel1"
			spec.InitContainers[1].Image, spec.InitContainers[2].Image = "ghcr.io/flannel-io/flannel:v0.27.0", "ghcr.io/flannel-io/flannel:v0.27.0"
		}
		fatal(t, s.api.Ensure(t.Context(), obj))
	}
	s.done = nil
	return d
}

func (s *addonStage) flannel(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	d := &appsv1.DaemonSet{}
	d.Namespace, d.Name = manifests.FlannelNamespace, manifests.FlannelDaemonSet
	_, err := s.api.Get(t.Context(), d)
	fatal(t, err)
	return d
}

// TestUpgradeFlannel: its images follow the release, and what an operator has edited stays.
func TestUpgradeFlannel(t *testing.T) {
	s := newAddonStage(t, "")
	d := s.withFlannel(t)
	d.Spec.Template.Spec.InitContainers[1].Command = append(d.Spec.Template.Spec.InitContainers[1].Command, "--iface-regex=^10")
	s.edited(t, d)
	s.play(t, upgradeAddon(onceUpgraded).Children[2])
	s.checkDone(t, []string{"ensure DaemonSet kube-flannel-ds"})
	fresh, err := manifests.Flannel(newStage(t, fixture.InitDocument+fixture.ClusterDocument).Config, config.PatchSet{})
	fatal(t, err)
	want := fresh[len(fresh)-1].(*appsv1.DaemonSet).DeepCopy()
	want.Spec.Template.Spec.InitContainers[1].Command = d.Spec.Template.Spec.InitContainers[1].Command
	var live cluster.Object = s.flannel(t)
	diffObjects(t, want, live)
	s.saidOnce(t, line{"Upgrading flannel", "ghcr.io/flannel-io/flannel:v0.28.10"}, line{"`kubectl -n kube-flannel rollout status daemonset/kube-flannel-ds`"},
		line{"`slipway init phase addon network --network flannel`"})
	s.done = nil
	s.play(t, upgradeAddon(onceUpgraded).Children[2])
	s.checkDone(t, nil)
}

// TestUpgradeForeignNetwork: a network that Slipway has not installed is not touched.
func TestUpgradeForeignNetwork(t *testing.T) {
	for name, there := range map[string]bool{"none": false, "flannel by its own manifest": true} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			if there {
				d := s.withFlannel(t)
				d.Labels = map[string]string{"tier": "node", "app": "flannel", "k8s-app": "flannel"}
				s.edited(t, d)
			}
			s.play(t, upgradeAddon(onceUpgraded).Children[2])
			s.checkDone(t, nil)
			s.saidOnce(t, line{"Leaving", "Pod network", "--network flannel"})
		})
	}
}
