// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// away is an API that doesn't answer any more.
type away struct{ cluster.Cluster }

func (away) Nodes(ctx context.Context) ([]corev1.Node, error) { <-ctx.Done(); return nil, ctx.Err() }

func (away) Get(ctx context.Context, _ cluster.Object) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// alarmed is an etcd without room.
type alarmed struct{ etcd.Etcd }

func (alarmed) Health(ctx context.Context) ([]etcd.Health, error) {
	m := etcd.Member{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}
	return []etcd.Health{{Member: m, Answers: true, Status: etcd.Status{Version: "3.6.12", Alarms: []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}}}}}, ctx.Err()
}

// TestFindingsWithoutAPI: an API that's away hides no fault of this host, and no edit that the upgrade may overwrite.
func TestFindingsWithoutAPI(t *testing.T) {
	const stray = "/etc/kubernetes/manifests/kube-scheduler.yaml.bak"
	for _, first := range []bool{true, false} {
		s := phasetest.PlaneToUpgrade(t)
		s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
		s.Config.Upgrade.First = first
		equipped{s.FakeHost, "none", 50 << 30}.set()
		s.Cluster, s.Etcd = away{s.API}, alarmed{s.Etcd}
		s.HasKubelet(t, "v1.37.2")
		s.Put(t, stray, s.Get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"))
		s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nmaxPods: 200\n")
		got := map[string]fault.Severity{}
		synctest.Test(t, func(t *testing.T) {
			for _, q := range upgradeBreakages(t.Context(), s.Env) {
				for _, f := range q.Run(t.Context(), s.Host) {
					got[f.Name] = f.Severity
				}
			}
		})
		want := map[string]fault.Severity{breakages.NotChecked: fault.Warning, strayCheck: fault.Error, etcdAlarmCheck: fault.Error, edits.KubeletCheck: fault.Error}
		delete(got, "EtcdSnapshotSpace") // it depends on etcd's answer
		if !maps.Equal(got, want) {
			t.Errorf("apply %t: found %v, want %v", first, got, want)
		}
	}
}

// slowAPI takes a minute for an answer.
type slowAPI struct{ away }

func (a slowAPI) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(time.Minute):
		own, found := obj.(*corev1.Node)
		if found {
			own.Status.NodeInfo.KubeletVersion = "v1.36.4"
		}
		return found, nil
	}
}

// TestSlowCluster: the checks of a cluster take as long as it needs if users give its calls more time.
func TestSlowCluster(t *testing.T) {
	for limit, checked := range map[time.Duration]bool{time.Minute: false, 20 * time.Minute: true} {
		s := phasetest.PlaneToUpgrade(t)
		s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
		s.Config.Upgrade.First, s.Config.Timeouts.KubernetesAPICall = false, limit
		s.Cluster, s.Etcd = slowAPI{}, alarmed{s.Etcd}
		synctest.Test(t, func(t *testing.T) {
			checks := upgradeBreakages(t.Context(), s.Env)
			if missed := slices.ContainsFunc(checks, func(c preflight.Check) bool { return c.Name == breakages.NotChecked }); missed == checked {
				t.Errorf("with %s for a call: %v", limit, checks)
			}
		})
	}
}

// TestPlanOverTwoReleases: this control plane's patches and images are for its first step, not for the target.
func TestPlanOverTwoReleases(t *testing.T) {
	const image = "example.com/kube-scheduler:v1.36.4"
	s := phasetest.PlaneFrom(t, "v1.35.8")
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
	s.FakeHost.On.ImagePresent = func(context.Context, string, string) (bool, error) { return false, nil }
	s.Put(t, "/patches/kube-scheduler.yaml", "spec: {containers: [{name: kube-scheduler, image: '"+image+"'}]}\n")
	s.Config.PatchesDir = "/patches"
	first := *s.Env
	first.Config = s.Config.With(func(n *config.Node) { n.Cluster.KubernetesVersion = "v1.36.4" })
	state := &upgrading.State{Configured: "v1.35.8", Nodes: []upgrading.NodeVersions{{Name: "cp-1", ControlPlane: true, APIServer: "v1.35.8", Kubelet: "v1.35.8"}}}
	report := preflight.Run(t.Context(), PlanQuestions(t.Context(), s.Env, &first, state, &inventory.Inventory{}), s.Host, nil)
	for _, f := range report[fault.Error] {
		if f.Name == "PatchedImages" || f.Name == edits.StaticPodCheck {
			t.Errorf("found %v", f)
		}
	}
	i := slices.IndexFunc(report[fault.Warning], func(f fault.Finding) bool { return f.Name == imagesCheck })
	if i < 0 {
		t.Fatalf("found %v", report)
	}
	fact.In(t, report[fault.Warning][i].Message, image, "kube-apiserver:v1.36.4")
}

// TestEncryptionFile: a control plane that lacks the keys, which its next API server has to read, is found by `apply`, `node` and `plan`.
func TestEncryptionFile(t *testing.T) {
	found := func(s *phasetest.Stage, checks []preflight.Check) (list []fault.Finding) {
		for _, c := range checks {
			if c.Name == node.EncryptionFileCheck {
				list = append(list, c.Run(t.Context(), s.Host)...)
			}
		}
		return list
	}
	s := phasetest.PlaneToUpgrade(t)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
	equipped{s.FakeHost, "none", 50 << 30}.set()
	s.Cluster, s.Etcd = away{s.API}, alarmed{s.Etcd}
	s.HasKubelet(t, "v1.37.2")
	state := &upgrading.State{Nodes: []upgrading.NodeVersions{{Name: "cp-1", ControlPlane: true}}}
	want := phasetest.FoundAs{Name: "error " + node.EncryptionFileCheck, Facts: []string{config.EncryptionFile}}
	for _, encrypted := range []bool{false, true} {
		if encrypted {
			s.Config.Cluster.APIServer.ExtraArgs, s.Config.Cluster.APIServer.ExtraVolumes = s.Config.Cluster.WithEncryptionFile()
		}
		for _, first := range []bool{true, false} {
			s.Config.Upgrade.First = first
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), inventoryTimeout(s.Env))
				defer cancel()
				for _, checks := range [][]preflight.Check{upgradeBreakages(t.Context(), s.Env), PlanQuestions(ctx, s.Env, s.Env, state, &inventory.Inventory{})} {
					if encrypted {
						phasetest.CheckFindings(t, found(s, checks), want)
					} else {
						phasetest.CheckFindings(t, found(s, checks))
					}
				}
			})
		}
	}
	s.Put(t, config.EncryptionFile, "kind: EncryptionConfiguration\n")
	phasetest.CheckFindings(t, node.EncryptionFileFindings(s.Env))
}
