// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestUpgradeFlannel: its images follow the release, and an operator's edits stay.
func TestUpgradeFlannel(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	d := s.WithFlannel(t)
	d.Spec.Template.Spec.InitContainers[1].Command = append(d.Spec.Template.Spec.InitContainers[1].Command, "--iface-regex=^10")
	s.Edited(t, d)
	s.Play(t, Upgrade(WhenAllUpgraded).Children[2])
	s.CheckDone(t, []string{"ensure DaemonSet kube-flannel-ds"})
	fresh, err := manifests.Flannel(phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument).Config, config.PatchSet{})
	phasetest.Fatal(t, err)
	want := fresh[len(fresh)-1].(*appsv1.DaemonSet).DeepCopy()
	want.Spec.Template.Spec.InitContainers[1].Command = d.Spec.Template.Spec.InitContainers[1].Command
	var live cluster.Object = s.Flannel(t)
	diffObjects(t, want, live)
	s.SaidOnce(t, phasetest.Line{"Upgrading flannel", "ghcr.io/flannel-io/flannel:v0.28.10"}, phasetest.Line{"`kubectl -n kube-flannel rollout status daemonset/kube-flannel-ds`"},
		phasetest.Line{"`slipway init phase addon network --network flannel`"})
	s.Done = nil
	s.Play(t, Upgrade(WhenAllUpgraded).Children[2])
	s.CheckDone(t, nil)
}

// TestUpgradeOldFlannel: the probes and the missing SELinux type of earlier releases count as theirs, and not as an operator's edit. An
// operator's timeout and SELinux options stay.
func TestUpgradeOldFlannel(t *testing.T) {
	for name, row := range map[string]struct{ have, want *corev1.PodSecurityContext }{
		"none":             {nil, selinuxType("spc_t")},
		"the API's":        {&corev1.PodSecurityContext{}, selinuxType("spc_t")},
		"others":           {&corev1.PodSecurityContext{FSGroup: new(int64(7))}, &corev1.PodSecurityContext{FSGroup: new(int64(7)), SELinuxOptions: selinuxType("spc_t").SELinuxOptions}},
		"an operator's":    {selinuxType("own_t"), selinuxType("own_t")},
		"today's, already": {selinuxType("spc_t"), selinuxType("spc_t")},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			d := s.WithFlannel(t)
			d.Spec.Template.Spec.SecurityContext = row.have
			s.Edited(t, d)
			s.Play(t, Upgrade(WhenAllUpgraded).Children[2])
			if diff := cmp.Diff(row.want, s.Flannel(t).Spec.Template.Spec.SecurityContext); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	s := phasetest.NewAddonStage(t, "")
	d := s.WithFlannel(t)
	old := &d.Spec.Template.Spec.InitContainers[1]
	old.StartupProbe.FailureThreshold = 120
	old.StartupProbe.TimeoutSeconds, old.LivenessProbe.TimeoutSeconds, old.ReadinessProbe.TimeoutSeconds = 1, 1, 40
	s.Edited(t, d)
	s.Play(t, Upgrade(WhenAllUpgraded).Children[2])
	got := s.Flannel(t).Spec.Template.Spec.InitContainers[1]
	if p := got.StartupProbe; p.TimeoutSeconds != 15 || p.FailureThreshold != 600 {
		t.Errorf("startup %+v", p)
	}
	if live, ready := got.LivenessProbe.TimeoutSeconds, got.ReadinessProbe.TimeoutSeconds; live != 15 || ready != 40 {
		t.Errorf("alive within %d s, ready within %d s", live, ready)
	}
}

func selinuxType(name string) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: name}}
}

// TestUpgradeOwnImages: nothing says that an operator's image is upgraded, as it stays.
func TestUpgradeOwnImages(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	proxy, flannel := s.DaemonSet(t), s.WithFlannel(t)
	proxy.Spec.Template.Spec.Containers[0].Image = "example.com/kube-proxy:v9"
	for i := range flannel.Spec.Template.Spec.InitContainers {
		flannel.Spec.Template.Spec.InitContainers[i].Image = "example.com/flannel:v9"
	}
	s.Edited(t, proxy, flannel)
	for _, child := range Upgrade(WhenAllUpgraded).Children[1:] {
		s.Play(t, child)
	}
	if got := s.DaemonSet(t).Spec.Template.Spec.Containers[0].Image; got != "example.com/kube-proxy:v9" {
		t.Errorf("kube-proxy %s", got)
	}
	if got := s.Flannel(t).Spec.Template.Spec.InitContainers[1].Image; got != "example.com/flannel:v9" {
		t.Errorf("flannel %s", got)
	}
	fact.NotIn(t, s.Said.String(), "Upgrading kube-proxy", "Upgrading flannel")
}

func TestUpgradeForeignNetwork(t *testing.T) {
	for name, there := range map[string]bool{"none": false, "flannel by its own manifest": true} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			if there {
				d := s.WithFlannel(t)
				d.Labels = map[string]string{"tier": "node", "app": "flannel", "k8s-app": "flannel"}
				s.Edited(t, d)
			}
			s.Play(t, Upgrade(WhenAllUpgraded).Children[2])
			s.CheckDone(t, nil)
			s.SaidOnce(t, phasetest.Line{"Leaving", "Pod network", "--network flannel"})
		})
	}
}

// TestMoveFlannel: another endpoint changes nothing else of flannel, and nothing of somebody's own server.
func TestMoveFlannel(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	want := s.WithFlannel(t).DeepCopy()
	upgrade := *s.Config.Upgrade
	upgrade.Before = s.Config
	s.Config = s.Config.With(func(n *config.Node) {
		n.Cluster.ControlPlaneEndpoint, n.Upgrade = "api.example.org:443", &upgrade
	})
	phasetest.Fatal(t, MoveFlannel(t.Context(), s.Env))
	if !manifests.MoveFlannel(want, upgrade.Before.Endpoint(), "api.example.org:443") {
		t.Errorf("flannel does not lead to %s", upgrade.Before.Endpoint())
	}
	var live cluster.Object = s.Flannel(t)
	diffObjects(t, want, live)
	s.Done = nil
	phasetest.Fatal(t, MoveFlannel(t.Context(), s.Env))
	s.CheckDone(t, nil)
	if env := want.Spec.Template.Spec.InitContainers[1].Env; len(env) != 5 || env[3].Value != "api.example.org" || env[4].Value != "443" {
		t.Errorf("%v", env)
	}
	if manifests.MoveFlannel(want, "other.example.org:443", "x:1") {
		t.Error("somebody's own server has changed")
	}
}
