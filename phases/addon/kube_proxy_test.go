// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func diffObjects(t *testing.T, want, got cluster.Object) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%T %s, -want +got:\n%s", want, want.GetName(), diff)
	}
}

// TestUpgradeKubeProxySettings: a user's settings stay, and the run names the defaults they lack.
func TestUpgradeKubeProxySettings(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		said     phasetest.Line
	}{
		"edited":                          {`mode: ""`, `mode: ipvs`, phasetest.Line{"Keeping ConfigMap kube-system/kube-proxy", "yours\n"}},
		"edited, without the new default": {"maxPerCore: null", "maxPerCore: 0", phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", "yours", "v1.37.2", ": mode: iptables\n"}},
		"unreadable":                      {"mode:", "]", phasetest.Line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", "yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			cm := phasetest.SystemConfigMap(t, s.Stage, "kube-proxy")
			if !strings.Contains(cm.Data["config.conf"], c.old) {
				t.Fatalf("no %q in\n%s", c.old, cm.Data["config.conf"])
			}
			cm.Data["config.conf"] = strings.Replace(cm.Data["config.conf"], c.old, c.new, 1)
			s.Edited(t, cm)
			upgrade(t, s, phasetest.WroteProxy, phasetest.WroteDNS)
			diffObjects(t, cm, phasetest.SystemConfigMap(t, s.Stage, "kube-proxy"))
			s.SaidOnce(t, c.said)
		})
	}
}

// TestUpgradeKubeProxyRestart: kube-proxy reads its settings only when it starts. An interruption between the two writes doesn't
// leave it with the old settings.
func TestUpgradeKubeProxyRestart(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		s := phasetest.NewAddonStage(t, "")
		ds := s.DaemonSet(t)
		ds.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/kube-proxy:v1.37.2"
		s.Edited(t, ds)
		phase := Upgrade(WhenAllUpgraded).Children[1]
		if interrupted {
			s.Planes.Left = 1
			if err := step.Run(t.Context(), s.Env, []step.Phase{phase}, step.Options{}); err == nil {
				t.Fatal("not interrupted")
			}
			s.CheckDone(t, []string{phasetest.WroteMode})
			s.Planes.Left, s.Done = -1, nil
		}
		s.Play(t, phase)
		want := []string{phasetest.WroteMode, phasetest.WroteProxy}
		if interrupted {
			want = want[1:]
		}
		s.CheckDone(t, want)
		cm := phasetest.SystemConfigMap(t, s.Stage, "kube-proxy")
		if got := s.DaemonSet(t).Spec.Template.Annotations[restartedFor]; got != manifests.ConfigHash(cm) {
			t.Errorf("the Pods are restarted for %q", got)
		}
		s.Done = nil
		s.Play(t, phase)
		s.CheckDone(t, nil)
	}
}

// TestUpgradeMissingAddons: a cluster that works without an add-on doesn't get it back.
func TestUpgradeMissingAddons(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	for _, obj := range []cluster.Object{s.Deployment(t), s.DaemonSet(t)} {
		phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), obj))
	}
	s.Done = nil
	upgrade(t, s)
	s.SaidOnce(t, phasetest.Line{"no Deployment kube-system/coredns", "`slipway init phase addon coredns`", "--config"},
		phasetest.Line{"no DaemonSet kube-system/kube-proxy", "`slipway init phase addon kube-proxy`", "--config"})
}

func TestUpgradeAddonCreatesWhatIsMissing(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	for _, obj := range []cluster.Object{
		phasetest.SystemConfigMap(t, s.Stage, "coredns"), phasetest.SystemConfigMap(t, s.Stage, "kube-proxy"),
		&corev1.ServiceAccount{ObjectMeta: *s.Deployment(t).ObjectMeta.DeepCopy()},
	} {
		phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), obj))
	}
	s.Done = nil
	upgrade(t, s, phasetest.WroteFile, phasetest.WroteMode, phasetest.WroteProxy, phasetest.WroteDNS, "ensure ServiceAccount coredns")
}

// TestUpgradeAddonWaitsForControlPlanes: the last control plane upgrades the shared add-ons.
func TestUpgradeAddonWaitsForControlPlanes(t *testing.T) {
	for name, c := range map[string]struct {
		images map[string]string
		own    string         // this node's static Pod's image
		said   phasetest.Line // none if the add-ons are upgraded
	}{
		"all":               {images: map[string]string{"cp-2": "example.com/kube-apiserver:v1.37.2@sha256:0123", "cp-3": "a:5000/kube-apiserver:v1.37.3_x.1"}},
		"an old one":        {images: map[string]string{"cp-2": "registry.k8s.io/kube-apiserver:v1.37.2", "cp-3": "registry.k8s.io/kube-apiserver:v1.36.4"}, said: phasetest.Line{": cp-3 (runs v1.36.4)\n"}},
		"without a Pod":     {images: map[string]string{"cp-2": ""}, said: phasetest.Line{": cp-2 (", "kube-apiserver Pod"}},
		"unknown":           {images: map[string]string{"cp-2": "example.com/kube-apiserver:nightly"}, said: phasetest.Line{": cp-2 (", "example.com/kube-apiserver:nightly", "unknown)\n"}},
		"an old patch":      {images: map[string]string{"cp-2": "registry.k8s.io/kube-apiserver:v1.37.1"}, said: phasetest.Line{": cp-2 (runs v1.37.1)\n"}},
		"this one is old":   {own: "registry.k8s.io/kube-apiserver:v1.36.4", said: phasetest.Line{": cp-1 (runs v1.36.4)\n"}},
		"this one's mirror": {images: map[string]string{"cp-1": "registry.k8s.io/kube-apiserver:v1.36.4"}, own: "registry.k8s.io/kube-apiserver:v1.37.2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			for node, image := range c.images {
				s.Planes.Server(node, image)
			}
			if c.own != "" {
				s.Put(t, phasetest.APIServerManifest, "spec: {containers: [{name: kube-apiserver, image: '"+c.own+"'}]}\n")
			}
			s.Play(t, Upgrade(WhenAllUpgraded))
			if c.said == nil {
				if s.Deployment(t).Spec.Template.Spec.Containers[0].Image != phasetest.NewDNS {
					t.Errorf("not upgraded:\n%s", s.Said.String())
				}
				return
			}
			s.CheckDone(t, nil)
			s.SaidOnce(t, append(phasetest.Line{"Leaving CoreDNS", "v1.37.2"}, c.said...), append(phasetest.Line{"Leaving kube-proxy", "v1.37.2"}, c.said...))
		})
	}
}

// TestUpgradeAddonPatches: a patch replaces an operator's edit, and a cluster made with the patch keeps it.
func TestUpgradeAddonPatches(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	s.Config.PatchesDir = "/patches"
	s.Put(t, "/patches/corednsdeployment.yaml", "spec: {template: {spec: {priorityClassName: mine, containers: [{name: coredns, env: [{name: A, value: b}]}]}}}\n")
	s.Put(t, "/patches/kubeproxydaemonset+json.yaml", "- {op: add, path: /spec/template/spec/tolerations/-, value: {key: x, operator: Exists}}\n")
	d := s.Deployment(t)
	d.Spec.Template.Spec.PriorityClassName = "edited"
	s.Edited(t, d)
	upgrade(t, s, phasetest.WroteMode, phasetest.WroteProxy, phasetest.WroteDNS)
	pod := s.Deployment(t).Spec.Template.Spec
	if pod.PriorityClassName != "mine" || len(pod.Containers[0].Env) != 1 || len(s.DaemonSet(t).Spec.Template.Spec.Tolerations) != 2 {
		t.Errorf("the patches were not applied: %v, %v", pod, s.DaemonSet(t).Spec.Template.Spec.Tolerations)
	}
}

// TestUpgradeAddonPhases: a worker leaves the add-ons alone, and a cluster made without add-ons stays without them.
func TestUpgradeAddonPhases(t *testing.T) {
	s := phasetest.NewAddonStage(t, "dns: {disabled: true}\nproxy: {disabled: true}\n")
	upgrade(t, s)
	s = phasetest.NewAddonStage(t, "")
	s.Config.ControlPlane = false
	upgrade(t, s)
}
