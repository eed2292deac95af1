// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// latePods is an API that has the nodes' Pods only from a given look on.
type latePods struct {
	*phasetest.Planes
	from, looks int
}

func (l *latePods) Pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	if l.looks++; l.looks < l.from {
		return nil, nil
	}
	return l.Planes.Pods(ctx, namespace, selector)
}

// TestServersOfWorkers: a worker's mirror Pod, with any image, doesn't delay an upgrade or its add-ons. Findings name it.
func TestServersOfWorkers(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	s.Planes.Known = append(s.Planes.Known, *cluster.NewNode("w-1"))
	for _, image := range []string{"registry.k8s.io/kube-apiserver:v1.20.0", "evil"} {
		s.Planes.Running = append(s.Planes.Running, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-w-1", Labels: map[string]string{"component": "kube-apiserver"}},
			Spec: corev1.PodSpec{NodeName: "w-1", Containers: []corev1.Container{{Name: "kube-apiserver", Image: image}}}})
	}
	if behind, _, err := addon.ControlPlanesBehind(t.Context(), s.Env); err != nil || len(behind) > 0 {
		t.Errorf("behind: %q, %v", behind, err)
	}
	phasetest.Fatal(t, s.API.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.4\n")))
	state, err := upgrading.Look(t.Context(), s.Cluster)
	phasetest.Fatal(t, err)
	for _, n := range state.Nodes {
		if n.ControlPlane != (n.Name == "cp-1") {
			t.Errorf("%+v", n)
		}
	}
	phasetest.CheckFindings(t, strayPods(state), phasetest.FoundAs{Name: "warning ControlPlaneLabel", Facts: []string{"node w-1", "kube-apiserver-w-1", cluster.LabelControlPlane}})

}

// TestUnmarkedControlPlane: a host with an API server's static Pod knows that it's a control plane, even if its Node isn't
// labeled. A worker beside it doesn't become one.
func TestUnmarkedControlPlane(t *testing.T) {
	s := phasetest.NewAddonStage(t, "")
	s.Planes.Known[0].Labels = nil
	s.Planes.Running[0].Labels = map[string]string{"component": "kube-apiserver"}
	s.Planes.Known = append(s.Planes.Known, *cluster.NewNode("w-1"))
	s.Planes.Running = append(s.Planes.Running, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-w-1", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec: corev1.PodSpec{NodeName: "w-1", Containers: []corev1.Container{{Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.20.0"}}}})
	phasetest.Fatal(t, s.API.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.4\n")))
	phasetest.CheckFindings(t, unmarkedHere(s.Env, s.Planes.Known), phasetest.FoundAs{Name: "warning ControlPlaneLabel", Facts: []string{"node cp-1", cluster.LabelControlPlane}})
	state, err := lookFromHere(t.Context(), s.Env)
	phasetest.Fatal(t, err)
	for _, n := range state.Nodes {
		if own := n.Name == "cp-1"; n.ControlPlane != own || (n.APIServer != "") != own {
			t.Errorf("%+v", n)
		}
	}
	phasetest.CheckFindings(t, strayPods(state), phasetest.FoundAs{Name: "warning ControlPlaneLabel", Facts: []string{"node w-1", "kube-apiserver-w-1", cluster.LabelControlPlane}})
	servers, err := addon.MirroredServers(t.Context(), s.Env)
	if err != nil || len(servers) != 1 || servers["cp-1"] == nil {
		t.Errorf("API servers: %v, %v", servers, err)
	}
}

// TestAwaitServerPods: a new kubelet needs a moment to create the Pod. If it never comes, the version check reports it.
func TestAwaitServerPods(t *testing.T) {
	waiting := func(node string) phasetest.Line {
		return phasetest.Line{"Pod", "API server", "of " + node + ", ", "1m0s\n"}
	}
	for name, test := range map[string]struct {
		from        int
		dead        string
		interrupted time.Duration // after this time
		took        time.Duration
		said        phasetest.Line // nothing else
		fails       string
	}{
		"all there": {},
		"late":      {from: 4, took: 3 * node.ReadyInterval, said: waiting("cp-1")},
		"never":     {dead: "cp-2", took: time.Minute, said: waiting("cp-2")},
		"interrupted": {dead: "cp-2", interrupted: 5 * time.Second, took: 5 * time.Second, said: waiting("cp-2"),
			fails: "interrupt signal received"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			if test.dead != "" {
				s.Planes.Server(test.dead, "")
			}
			s.Cluster = &latePods{Planes: s.Planes, from: test.from}
			s.Said.Reset()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.interrupted > 0 {
					time.AfterFunc(test.interrupted, func() { cancel(errors.New(test.fails)) })
				}
				began := time.Now()
				err := awaitServerPods(ctx, s.Env)
				if took := time.Since(began); took != test.took || phasetest.Message(err) != test.fails {
					t.Errorf("it took %s, want %s, and returned %v, want %q", took, test.took, err, test.fails)
				}
				if lines := strings.Count(s.Said.String(), "\n"); lines != min(len(test.said), 1) {
					t.Errorf("it said %q", s.Said.String())
				}
				if test.said != nil {
					s.SaidOnce(t, test.said)
				}
			})
		})
	}
}

// TestPatchedVersions: a patch from an earlier upgrade, or for a later one, can't give a component another version.
func TestPatchedVersions(t *testing.T) {
	for image, refused := range map[string]bool{
		"example.com/kube-scheduler:v1.37.3":        true,
		"example.com/kube-scheduler:v1.36.4":        true,
		"example.com/kube-scheduler:v1.37.2":        false,
		"example.com/kube-scheduler:v1.37.2-own.1":  false,
		"example.com/kube-scheduler:latest":         false,
		"example.com:5000/kube-scheduler@sha256:ab": false,
	} {
		t.Run(image, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.Put(t, "/patches/kube-scheduler0.yaml", "spec: {containers: [{name: kube-scheduler, image: '"+image+"'}]}\n")
			s.Put(t, "/patches/kube-scheduler1.yaml", "metadata: {labels: {a: b}}\n")
			s.Config.PatchesDir = "/patches"
			var want []phasetest.FoundAs
			if refused {
				want = []phasetest.FoundAs{{Name: "error PatchedImages", Facts: []string{"kube-scheduler0.yaml", "/patches", image, "v1.37.2"}}}
			}
			report := preflight.Run(t.Context(), []preflight.Check{node.NewPatchedImagesCheck(s.Env)}, s.Host, []string{"all"})
			phasetest.CheckFindings(t, report[fault.Error], want...)
			if refused {
				fact.Error(t, runUpgradeControlPlane(t.Context(), s.Env), image)
			}
		})
	}
}

// TestPatchedImageIsPulled: the image from a patch is pulled before the API goes down, and nothing pulls the default.
func TestPatchedImageIsPulled(t *testing.T) {
	const own, normal = "example.com/kube-scheduler:v1.37.2", "registry.k8s.io/kube-scheduler:v1.37.2"
	s := phasetest.PlaneToUpgrade(t)
	s.Put(t, "/patches/kube-scheduler.yaml", "spec: {containers: [{name: kube-scheduler, image: '"+own+"'}]}\n")
	s.Config.PatchesDir = "/patches"
	images, err := node.Images(s.Env)
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, node.PullMissingImages(t.Context(), s.Env))
	pulled := s.FakeHost.Did("pull")
	slices.Sort(pulled)
	if want := slices.Sorted(slices.Values(images)); !slices.Equal(pulled, want) {
		t.Errorf("pulled %q, want %q", pulled, want)
	}
	if !slices.Contains(pulled, own) || slices.Contains(pulled, normal) || len(pulled) != len(s.Config.Images()) {
		t.Errorf("pulled %q instead of %q", pulled, s.Config.Images())
	}
}

// TestPinnedEtcd: an upgrade doesn't start an etcd 3.5 with flags of 3.6, unless it leaves etcd alone.
func TestPinnedEtcd(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Config.Cluster.Etcd.Local.ImageTag = "3.5.21-0"
	for _, etcd := range []bool{true, false} {
		s.Config.Upgrade.Etcd = etcd
		asked := slices.ContainsFunc(upgradeQuestions(s.Env), func(c preflight.Check) bool {
			return c.Name == "EtcdImageTag" && len(c.Run(t.Context(), s.Host)) == 1
		})
		if asked != etcd {
			t.Errorf("etcd upgraded: %t, found: %t", etcd, asked)
		}
	}
	s.Config.Upgrade.Etcd = true
	fact.Error(t, runUpgradeControlPlane(t.Context(), s.Env), "EtcdImageTag", "3.5.21-0")
}

// TestKernelOfKubelet: a node whose kubelet wouldn't start with its next settings is found before an upgrade writes them. The patches count,
// and so do the flags that stay, but not the present config.yaml.
func TestKernelOfKubelet(t *testing.T) {
	const on, off = "protectKernelDefaults: true\n", "protectKernelDefaults: false\n"
	for name, s := range map[string]*phasetest.Stage{"control plane": phasetest.PlaneToUpgrade(t), "worker": workerToUpgrade(t).Stage} {
		s.Put(t, host.ProcSys+"kernel/panic", "0\n")
		for _, row := range []struct {
			cluster     bool
			patch, flag string
			protects    bool
		}{
			{false, "", "", false},
			{true, "", "", true},
			{true, off, "", false},
			{false, on, "", true},
			{true, "", "--protect-kernel-defaults=false", false},
			{false, off, "--protect-kernel-defaults", true},
		} {
			present := on
			if row.protects {
				present = off
			}
			s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n"+present)
			s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="`+row.flag+`"`+"\n")
			s.Put(t, "/patches/kubeletconfiguration.yaml", cmp.Or(row.patch, "{}\n"))
			s.Config.Kubelet.ProtectKernelDefaults, s.Config.PatchesDir = row.cluster, "/patches"
			lists := map[string][]preflight.Check{"apply": upgradeQuestions(s.Env)}
			if s.Config.ControlPlane {
				lists["plan"] = PlanQuestions(t.Context(), s.Env, s.Env, &upgrading.State{}, &inventory.Inventory{})
			}
			for command, checks := range lists {
				checks = slices.DeleteFunc(checks, func(c preflight.Check) bool { return c.Name != "KernelDefaults" })
				found := preflight.Run(t.Context(), checks, s.Host, nil)[fault.Error]
				if row.protects != (len(found) == 1) || row.protects && !strings.Contains(found[0].Message, "kernel.panic=10") {
					t.Errorf("%s on a %s, %+v: found %v", command, name, row, found)
				}
			}
		}
	}
}
