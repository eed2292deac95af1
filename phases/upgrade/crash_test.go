// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var applyScenario = phasetest.Applying(bootstrap.Init, Apply)

// nodePlaneScenario upgrades a control plane after another has upgraded the cluster.
var nodePlaneScenario = phasetest.Scenario{
	Name: "upgrade-node-control-plane",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		if err := phasetest.PrepareApply(bootstrap.Init)(t, s); err != nil {
			return err
		}
		old, err := phasetest.OldPlane(bootstrap.Init)
		if err != nil {
			return err
		}
		const path = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
		data, _ := old.Objects[path]["data"].(map[string]any)
		stored := strings.ReplaceAll(fmt.Sprint(data["ClusterConfiguration"]), phasetest.CrashFrom, phasetest.CrashTo)
		s.API.Put(path, fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", stored))
		return nil
	},
	Run:      phasetest.RunUpgrade("node", Node),
	Reads:    "/etc/kubernetes/manifests/etcd.yaml",
	Renews:   []string{phasetest.LeaseWrite},
	Rewrites: phasetest.Renewed,
}

var nodeScenario = phasetest.Scenario{
	Name:    "upgrade-node",
	Prepare: phasetest.PrepareNode(bootstrap.Join, bootstrap.DetectEarlierRun),
	Run:     phasetest.RunUpgrade("node", Node),
	Reads:   "/proc/sys/net/ipv4/ip_forward", // by anything but the kubelet, which doesn't restart
	Renews:  []string{"PUT /api/v1/nodes/worker-1"},
}

// TestUpgradePlanWritesNothing: a plan changes neither cluster nor host, and has a step for each object that the run writes.
func TestUpgradePlanWritesNothing(t *testing.T) {
	for _, c := range []phasetest.Scenario{applyScenario, nodeScenario, nodePlaneScenario} {
		t.Run(c.Name, func(t *testing.T) {
			s := phasetest.NewScene(t, c)
			defer s.Close()
			files, before := s.Stamps(t), len(s.API.Writes())
			planned, objects := phasetest.NewLastingHost(s.Root), map[string]bool{} // by name
			planned.Plans = func(env *step.Env) {
				env.Host = plan.NewOverlay(planned, func(host.Action) {})
				env.Cluster = cluster.NewPlan(func(a cluster.Action) { objects[a.Name] = true }, env.Cluster)
				env.Etcd = etcd.NewPlan(func(etcd.Action) {}, etcd.Member{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"})
			}
			if said, err := s.On(t.Context(), planned); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if diff := gocmp.Diff(files, s.Stamps(t)); diff != "" {
				t.Errorf("the plan changed files:\n%s", diff)
			}
			if writes := s.API.Writes()[before:]; len(writes) > 0 {
				t.Errorf("the plan wrote %q", writes)
			}
			if said, err := s.Again(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			writes := s.API.Writes()[before:]
			if len(writes) < 4 {
				t.Errorf("the run wrote only %q", writes)
			}
			for _, write := range writes {
				name := path.Base(strings.TrimSuffix(write, "/eviction"))
				if !objects[name] {
					t.Errorf("%s is not in the plan, which has %q", write, slices.Sorted(maps.Keys(objects)))
				}
			}
		})
	}
}

var scenarios = []phasetest.Scenario{applyScenario, nodeScenario, nodePlaneScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }

func TestAPIFaults(t *testing.T) { phasetest.SpoilEach(t, scenarios) }

func TestHungUnits(t *testing.T) { phasetest.HangEach(t, scenarios) }
