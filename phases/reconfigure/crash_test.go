// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/phases/upgrade"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// withDNS changes everything, and CoreDNS.
var withDNS = strings.Replace(everything, "apiServer:", "dns: {imageRepository: example.org/next}\napiServer:", 1)

// reconfigureScenario changes everything, and CoreDNS, on the control plane of an earlier version's init.
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
	Prepare: phasetest.PrepareNode(bootstrap.Join, bootstrap.DetectEarlierRun),
	Run:     reconfigureNode,
	Reads:   "/var/lib/kubelet/config.yaml",
}

// endpointScenario gives the cluster another endpoint.
var endpointScenario = phasetest.Scenario{
	Name: "reconfigure-endpoint", Prepare: reconfigureScenario.Prepare, Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews,
	Run: func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		return reconfigureTo(ctx, h, endpoint, say, ofCluster+"controlPlaneEndpoint: next.example.org:443\n")
	},
}

// tryScenario is reconfigureScenario with a confirmation, revertScenario takes the change back.
var (
	tryScenario = phasetest.Scenario{
		Name: "reconfigure-try", Prepare: reconfigureScenario.Prepare, Run: reconfigureTry,
		Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews,
	}
	revertScenario = phasetest.Scenario{
		Name: "reconfigure-revert", Run: revert, Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews,
		Prepare: func(t *testing.T, s *phasetest.Scene) error {
			if err := reconfigureScenario.Prepare(t, s); err != nil {
				return err
			}
			s.Run = reconfigure
			_, err := s.Again(t.Context())
			s.Run, s.Writing = revert, 0
			return err
		},
	}
)

func crashOptions() config.Options {
	return config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
}

// livingOn is this node with the default configuration.
func livingOn(h host.Host) (*config.Node, []string, error) {
	return config.LoadCluster(config.DefaultCluster(), nil, nil, reconfiguring.NewLoader(h, nil, crashOptions()).Self, crashOptions())
}

func reconfigure(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	return reconfigureTo(ctx, h, endpoint, say, withDNS)
}

func reconfigureTo(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer, documents string) error {
	return command(ctx, h, endpoint, say, (*Run).Phases, func(l reconfiguring.Loader) (*Run, error) {
		c, _, err := l.Load(ctx, &config.Source{Name: "change.yaml", Data: []byte(documents)})
		return New(c, ""), err
	})
}

func reconfigureNode(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	return command(ctx, h, endpoint, say, (*Run).NodePhases, func(l reconfiguring.Loader) (*Run, error) {
		c, _, err := l.Stored(ctx)
		return New(c, ""), err
	})
}

// reconfigureTry confirms the change as soon as it waits for that.
func reconfigureTry(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	return command(ctx, h, endpoint, say, (*Run).Phases, func(l reconfiguring.Loader) (*Run, error) {
		c, _, err := l.Load(ctx, &config.Source{Name: "change.yaml", Data: []byte(withDNS)})
		if err != nil {
			return nil, err
		}
		r := New(c, "")
		r.Try, r.Wait = time.Minute, func(wait func() error) error {
			if err := confirm(&step.Env{Host: h, Config: c.Node}); err != nil {
				return err
			}
			return wait()
		}
		return r, nil
	})
}

// upgradeScenario upgrades the node after the kill. An unfinished change is in the way of that, and the node is as before.
var upgradeScenario = phasetest.Scenario{
	Name: "reconfigure-upgrade", Prepare: reconfigureScenario.Prepare, Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews,
	Run: func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		living, _, err := livingOn(h)
		if err != nil {
			return err
		}
		env := &step.Env{Host: h, Config: living}
		before, err := Unfinished(env)
		if err != nil {
			return err
		}
		if before != nil {
			err := phasetest.RunUpgrade("apply", upgrade.Apply)(ctx, h, endpoint, say)
			if err == nil || !strings.Contains(err.Error(), fault.UnfinishedChange) {
				return errors.Errorf("upgraded beside a change that is %q: %v", before.State, err)
			}
			if now, err := Unfinished(env); err != nil || now == nil || now.State != before.State {
				return errors.Errorf("the upgrade has made %+v of %+v, %v", now, before, err)
			}
		}
		return reconfigure(ctx, h, endpoint, say)
	},
}

func confirm(env *step.Env) error {
	_, err := Answer(env, trial.Confirmed, false)
	return err
}

func revert(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	return command(ctx, h, endpoint, say, (*Run).RevertPhases, func(l reconfiguring.Loader) (*Run, error) {
		r, _, err := NewRevert(ctx, h, l)
		return r, err
	})
}

// command runs a command, after one that finishes an interrupted change. A change that waits is confirmed.
func command(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer, workflow func(*Run) []step.Phase, load func(reconfiguring.Loader) (*Run, error)) error {
	living, _, err := livingOn(h)
	if err != nil {
		return err
	}
	env := &step.Env{Host: h, Config: living}
	unfinished, err := Unfinished(env)
	if err != nil {
		return err
	}
	if unfinished != nil {
		if unfinished.AwaitsConfirmation() {
			if err := confirm(env); err != nil {
				return err
			}
		}
		if err := phasetest.CrashRun(ctx, living, h, endpoint, say, FinishAndAwaitAPI(), nil); err != nil {
			return err
		}
	}
	r, err := load(reconfiguring.NewLoader(h, cluster.New(phasetest.CrashOptions(h, endpoint, living.ControlPlane, config.DefaultAdminKubeconfig,
		living.Paths.KubeletKubeconfig(), living.Timeouts.KubernetesAPICall)), crashOptions()))
	if err != nil {
		return err
	}
	r.Program = "/usr/bin/slipway"
	return phasetest.CrashRun(ctx, r.Node, h, endpoint, say, workflow(r), nil)
}

var (
	scenarios = []phasetest.Scenario{reconfigureScenario, nodePlaneScenario, nodeScenario, endpointScenario, tryScenario, revertScenario}
	wayBacks  = []phasetest.Scenario{
		bootScenario, upgradeScenario, wayBackScenario("way-back", trial.Unconfirmed), wayBackScenario("way-back-confirmed", trial.Confirmed),
	}
)

func TestMain(m *testing.M) { phasetest.Main(m, slices.Concat(scenarios, wayBacks)...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, slices.Concat(scenarios, wayBacks)) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }
