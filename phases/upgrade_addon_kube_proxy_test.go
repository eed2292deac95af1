// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
)

// diffObjects fails if two objects differ.
func diffObjects(t *testing.T, want, got cluster.Object) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%T %s, -want +got:\n%s", want, want.GetName(), diff)
	}
}

// checkDone checks what was written.
func (s *addonStage) checkDone(t *testing.T, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, without(s.done, "ensure ClusterRoleBinding kubeadm:cluster-admins")); diff != "" {
		t.Errorf("did, -want +got:\n%s", diff)
	}
}

// TestUpgradeKubeProxySettings: those of a user stay, and the run says what they lack.
func TestUpgradeKubeProxySettings(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		said     line
	}{
		"edited":                          {`mode: ""`, `mode: ipvs`, line{"Keeping ConfigMap kube-system/kube-proxy", "yours\n"}},
		"edited, without the new default": {"maxPerCore: null", "maxPerCore: 0", line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", "yours", "v1.37.2", ": mode: iptables\n"}},
		"unreadable":                      {"mode:", "]", line{"[WARNING]", "keeping ConfigMap kube-system/kube-proxy", "yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			cm := systemConfigMap(t, s.stage, "kube-proxy")
			if !strings.Contains(cm.Data["config.conf"], c.old) {
				t.Fatalf("no %q in\n%s", c.old, cm.Data["config.conf"])
			}
			cm.Data["config.conf"] = strings.Replace(cm.Data["config.conf"], c.old, c.new, 1)
			s.edited(t, cm)
			s.upgrade(t, wroteProxy, wroteDNS)
			diffObjects(t, cm, systemConfigMap(t, s.stage, "kube-proxy"))
			s.saidOnce(t, c.said)
		})
	}
}

// TestUpgradeKubeProxyRestart: kube-proxy reads its settings only when it starts. An interruption between the two writes
// does not leave it with the old ones.
func TestUpgradeKubeProxyRestart(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		s := newAddonStage(t, "")
		ds := s.daemonSet(t)
		ds.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/kube-proxy:v1.37.2"
		s.edited(t, ds)
		phase := upgradeAddon(onceUpgraded).Children[1]
		if interrupted {
			s.planes.left = 1
			if err := Run(t.Context(), s.Env, []Phase{phase}, Options{}); err == nil {
				t.Fatal("not interrupted")
			}
			s.checkDone(t, []string{wroteMode})
			s.planes.left, s.done = -1, nil
		}
		s.play(t, phase)
		want := []string{wroteMode, wroteProxy}
		if interrupted {
			want = want[1:]
		}
		s.checkDone(t, want)
		cm := systemConfigMap(t, s.stage, "kube-proxy")
		if got := s.daemonSet(t).Spec.Template.Annotations[restartedFor]; got != manifests.ConfigHash(cm) {
			t.Errorf("the Pods are restarted for %q", got)
		}
		s.done = nil
		s.play(t, phase)
		s.checkDone(t, nil)
	}
}

// TestUpgradeMissingAddons: a cluster that works without one of the add-ons does not get it back.
func TestUpgradeMissingAddons(t *testing.T) {
	s := newAddonStage(t, "")
	for _, obj := range []cluster.Object{s.deployment(t), s.daemonSet(t)} {
		fatal(t, s.api.EnsureAbsent(t.Context(), obj))
	}
	s.done = nil
	s.upgrade(t)
	s.saidOnce(t, line{"no Deployment kube-system/coredns", "`slipway init phase addon coredns`"},
		line{"no DaemonSet kube-system/kube-proxy", "`slipway init phase addon kube-proxy`"})
}

// TestUpgradeAddonCreatesWhatIsMissing besides the workloads.
func TestUpgradeAddonCreatesWhatIsMissing(t *testing.T) {
	s := newAddonStage(t, "")
	for _, obj := range []cluster.Object{
		systemConfigMap(t, s.stage, "coredns"), systemConfigMap(t, s.stage, "kube-proxy"),
		&corev1.ServiceAccount{ObjectMeta: *s.deployment(t).ObjectMeta.DeepCopy()},
	} {
		fatal(t, s.api.EnsureAbsent(t.Context(), obj))
	}
	s.done = nil
	s.upgrade(t, wroteFile, wroteMode, wroteProxy, wroteDNS, "ensure ServiceAccount coredns")
}

// TestUpgradeAddonWaitsForControlPlanes: the last control plane upgrades what all share.
func TestUpgradeAddonWaitsForControlPlanes(t *testing.T) {
	for name, c := range map[string]struct {
		images map[string]string
		own    string // the image of this node's static Pod
		said   line   // none if the add-ons are upgraded
	}{
		"all":               {images: map[string]string{"cp-2": "example.com/kube-apiserver:v1.37.2@sha256:0123", "cp-3": "a:5000/kube-apiserver:v1.37.3_x.1"}},
		"an old one":        {images: map[string]string{"cp-2": "registry.k8s.io/kube-apiserver:v1.37.2", "cp-3": "registry.k8s.io/kube-apiserver:v1.36.4"}, said: line{": cp-3 (runs v1.36.4)\n"}},
		"without a Pod":     {images: map[string]string{"cp-2": ""}, said: line{": cp-2 (", "kube-apiserver Pod"}},
		"unknown":           {images: map[string]string{"cp-2": "example.com/kube-apiserver:nightly"}, said: line{": cp-2 (", "example.com/kube-apiserver:nightly", "unknown)\n"}},
		"an old patch":      {images: map[string]string{"cp-2": "registry.k8s.io/kube-apiserver:v1.37.1"}, said: line{": cp-2 (runs v1.37.1)\n"}},
		"this one is old":   {own: "registry.k8s.io/kube-apiserver:v1.36.4", said: line{": cp-1 (runs v1.36.4)\n"}},
		"this one's mirror": {images: map[string]string{"cp-1": "registry.k8s.io/kube-apiserver:v1.36.4"}, own: "registry.k8s.io/kube-apiserver:v1.37.2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			for node, image := range c.images {
				s.planes.server(node, image)
			}
			if c.own != "" {
				s.put(t, apiServerManifest, "spec: {containers: [{name: kube-apiserver, image: '"+c.own+"'}]}\n")
			}
			s.play(t, upgradeAddon(onceUpgraded))
			if c.said == nil {
				if s.deployment(t).Spec.Template.Spec.Containers[0].Image != newDNS {
					t.Errorf("not upgraded:\n%s", s.said.String())
				}
				return
			}
			s.checkDone(t, nil)
			s.saidOnce(t, append(line{"Leaving CoreDNS", "v1.37.2"}, c.said...), append(line{"Leaving kube-proxy", "v1.37.2"}, c.said...))
		})
	}
}

// TestUpgradeAddonPatches: a patch replaces what an operator has edited, and a cluster that was made with it keeps it.
func TestUpgradeAddonPatches(t *testing.T) {
	s := newAddonStage(t, "")
	s.Config.PatchesDir = "/patches"
	s.put(t, "/patches/corednsdeployment.yaml", "spec: {template: {spec: {priorityClassName: mine, containers: [{name: coredns, env: [{name: A, value: b}]}]}}}\n")
	s.put(t, "/patches/kubeproxydaemonset+json.yaml", "- {op: add, path: /spec/template/spec/tolerations/-, value: {key: x, operator: Exists}}\n")
	d := s.deployment(t)
	d.Spec.Template.Spec.PriorityClassName = "edited"
	s.edited(t, d)
	s.upgrade(t, wroteMode, wroteProxy, wroteDNS)
	pod := s.deployment(t).Spec.Template.Spec
	if pod.PriorityClassName != "mine" || len(pod.Containers[0].Env) != 1 || len(s.daemonSet(t).Spec.Template.Spec.Tolerations) != 2 {
		t.Errorf("the patches were not applied: %v, %v", pod, s.daemonSet(t).Spec.Template.Spec.Tolerations)
	}
}

// TestUpgradeAddonPhases: a worker leaves the add-ons alone, and a cluster that was made without one stays without it.
func TestUpgradeAddonPhases(t *testing.T) {
	s := newAddonStage(t, "dns: {disabled: true}\nproxy: {disabled: true}\n")
	s.upgrade(t)
	s = newAddonStage(t, "")
	s.Config.ControlPlane = false
	s.upgrade(t)
}
