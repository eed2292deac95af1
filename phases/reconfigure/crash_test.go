// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// reconfigureScenario changes everything on the control plane of an earlier version's init.
var reconfigureScenario = phasetest.Scenario{
	Name: "reconfigure",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		err := phasetest.PrepareApply(bootstrap.Init)(t, s)
		node := phasetest.ReportingNode("cp-1")
		node["metadata"] = map[string]any{"name": "cp-1", "labels": map[string]any{cluster.LabelControlPlane: ""}}
		s.API.Put("/api/v1/nodes/cp-1", node)
		return err
	},
	Run:    reconfigure,
	Reads:  "/var/lib/kubelet/config.yaml",
	Renews: []string{phasetest.LeaseWrite},
}

// nodePlaneScenario brings the control plane of an earlier version's init to a configuration that another has stored.
var nodePlaneScenario = phasetest.Scenario{
	Name: "reconfigure-node-control-plane",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		if err := reconfigureScenario.Prepare(t, s); err != nil {
			return err
		}
		for name, change := range map[string]struct{ key, text string }{
			"kubeadm-config": {"ClusterConfiguration", "scheduler: {extraArgs: [{name: v, value: \"3\"}]}\n"},
			"kubelet-config": {"kubelet", "podPidsLimit: 99\n"},
		} {
			path := "/api/v1/namespaces/kube-system/configmaps/" + name
			data, _ := s.API.Objects()[path]["data"].(map[string]any)
			stored := strings.ReplaceAll(fmt.Sprint(data[change.key]), "scheduler: {}\n", "")
			cm := fixture.ConfigMap(name, change.key, stored+change.text)
			cm.Annotations = map[string]string{edits.ChangedByOperator: time.Now().Add(time.Minute).Format(time.RFC3339)}
			s.API.Put(path, cm)
		}
		return nil
	},
	Run:    reconfigureNode,
	Reads:  "/var/lib/kubelet/config.yaml",
	Renews: []string{phasetest.LeaseWrite},
}

// nodeScenario brings a worker to a configuration that was changed since it joined.
var nodeScenario = phasetest.Scenario{
	Name:    "reconfigure-node",
	Prepare: phasetest.PrepareNode(bootstrap.Join, bootstrap.LookBack),
	Run:     reconfigureNode,
	Reads:   "/var/lib/kubelet/config.yaml",
}

func crashOptions() config.Options {
	return config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
}

func reconfigure(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	load := func(api cluster.Cluster) (*reconfiguring.Change, []string, error) {
		return reconfiguring.Load(ctx, api, &config.Source{Name: "change.yaml", Data: []byte(everything)}, reconfiguring.Self(h), crashOptions())
	}
	return command(ctx, h, endpoint, say, load, (*Run).Phases)
}

func reconfigureNode(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	load := func(api cluster.Cluster) (*reconfiguring.Change, []string, error) {
		return reconfiguring.Stored(ctx, api, reconfiguring.Self(h), crashOptions())
	}
	return command(ctx, h, endpoint, say, load, (*Run).NodePhases)
}

type crashLoader func(cluster.Cluster) (*reconfiguring.Change, []string, error)

// command runs a command, and once more if the first run only puts back an interrupted change.
func command(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer, load crashLoader, workflow func(*Run) []step.Phase) error {
	living, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, reconfiguring.Self(h), crashOptions())
	if err != nil {
		return err
	}
	interrupted, err := Interrupted(&step.Env{Host: h, Config: living})
	if err != nil {
		return err
	}
	if interrupted != nil {
		if err := phasetest.CrashRun(ctx, living, h, endpoint, say, PutBack(interrupted, false), nil); err != nil {
			return err
		}
	}
	limits := living.Timeouts
	change, _, err := load(cluster.New(phasetest.CrashOptions(h, endpoint, living.ControlPlane, config.DefaultAdminKubeconfig,
		thisnode.KubeletConf(living), limits.KubernetesAPICall)))
	if err != nil {
		return err
	}
	r, err := New(&step.Env{Host: h, Config: living}, change, "/usr/bin/slipway")
	if err != nil {
		return err
	}
	return phasetest.CrashRun(ctx, change.Node, h, endpoint, say, workflow(r), nil)
}

var scenarios = []phasetest.Scenario{reconfigureScenario, nodePlaneScenario, nodeScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }
