// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	hostplan "github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Planning shows what Acting would do, and changes nothing.
type Planning struct {
	G *cli.Globals
	// Diff compares the plan with this host and its cluster. Without it, no cluster is asked.
	Diff bool
}

// Options has placeholders for secrets, so that the same input gives the same plan.
func (Planning) Options(facts config.HostFacts) config.Options {
	return config.Options{
		Facts:             facts,
		NewToken:          placeholderTokens(),
		NewCertificateKey: func() string { return strings.Repeat("0", 64) },
		Resolve:           config.ResolveLabel,
	}
}

// placeholderTokens generates tokens with distinct IDs, as a configuration requires.
func placeholderTokens() func() (id, secret string) {
	ids := 0
	return func() (id, secret string) {
		if id = "abcdef"; ids > 0 {
			id = fmt.Sprintf("abc%03d", ids)
		}
		ids++
		return id, "0123456789abcdef"
	}
}

func (Planning) checkReport(r *cli.Report) error {
	if r.TimelineFile != "" {
		return errors.New("--timeline does not go with --dry-run, which runs nothing that takes time")
	}
	return nil
}

func (p Planning) sinks(r *cli.Report) cli.Sinks { return cli.Sinks{UI: cli.PlainUI(p.G, r.Command)} }

func (p Planning) Discover(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	said, end := plan.UI{UI: newPlanUI(p.G)}.Start("discovery")
	d := NewDiscovery(real, said, self.Timeouts.KubernetesAPICall.Duration, opts)
	if !p.Diff {
		node, warnings, err := d.Assume(ctx, self, hostplan.NewOverlay(real, func(host.Action) {}))
		end(err)
		return node, warnings, err
	}
	node, warnings, err := d.Node(ctx, self)
	end(err)
	const other = "without --diff, a plan needs no cluster"
	return node, warnings, fault.WithRemedy(err, strings.TrimPrefix(fault.Remedy(err)+"; "+other, "; "))
}

func (p Planning) Joined(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	if p.Diff {
		return joining.JoinedNode(ctx, administrator(real, AskTimeout), self, opts)
	}
	node, err := joining.AssumedControlPlane(self, opts)
	return node, nil, err
}

func (p Planning) Stored(ctx context.Context, real *linux.Host) ([]byte, []string, error) {
	if p.Diff {
		return Acting{p.G}.Stored(ctx, real)
	}
	return config.DefaultCluster(), nil, nil
}

func (p Planning) Parts(node *config.Node, real *linux.Host) *Parts {
	parts, _ := p.Recorded(node, real)
	return parts
}

// Recorded returns parts, and the plan they record.
func (p Planning) Recorded(node *config.Node, real *linux.Host) (*Parts, *plan.Plan) {
	return p.recorded(node, real, node.Upgrade != nil) // an upgrade depends on the present objects
}

func (p Planning) LivingParts(node *config.Node, real *linux.Host) *Parts {
	parts, record := p.recorded(node, real, true)
	parts.Env.Etcd = etcd.NewLivePlan(record.AddEtcd, NewEtcd(node, real, cluster.New(ClusterOptions(node, real)), parts.Env.UI))
	return parts
}

// MachineParts ask a cluster only on its workers, which don't know its version otherwise.
func (p Planning) MachineParts(host *config.Machine, real *linux.Host) *Parts {
	record, said := p.newPlan(""), newPlanUI(p.G)
	var live cluster.Cluster
	if _, err := real.Lstat(host.Paths.KubeletKubeconfig()); err == nil && !thisnode.IsControlPlane(real) {
		live = cluster.New(kubeletOptions(host, real))
	}
	if p.Diff {
		record.CompareWith(real, said.Warnf)
	}
	return p.parts(real, plan.UI{UI: said, Plan: record}, &step.Env{Machine: host, Cluster: cluster.NewPlan(record.AddCluster, live)})
}

// newPlan is an empty plan in the report's form. node is the node's name; "" for a host that isn't known as a node.
func (p Planning) newPlan(node string) *plan.Plan {
	record := &plan.Plan{Form: "text", Node: node, Shown: func(text string) string { return cli.Shown(p.G.Program, text) }}
	if r := p.G.Report; r != nil {
		record.Form, record.Command = r.Form, r.Command
	}
	return record
}

func (p Planning) recorded(node *config.Node, real *linux.Host, asks bool) (*Parts, *plan.Plan) {
	record := p.newPlan(node.Name)
	record.Assume(node)
	said := newPlanUI(p.G)
	node = node.With(func(n *config.Node) { n.Timeouts.UpgradeManifests = min(n.Timeouts.UpgradeManifests, planPatience) })
	var live cluster.Cluster
	if asks {
		live = answering(cluster.New(ClusterOptions(node, real)))
	}
	api := cluster.NewPlan(record.AddCluster, live)
	if p.Diff {
		record.CompareWith(real, said.Warnf)
		if now := presentCluster(node, real); now != nil {
			api.CompareWith(now)
		}
	}
	return p.nodeParts(node, real, api, plan.UI{UI: said, Plan: record}), record
}

// planPatience is how long a plan waits for another control plane to finish its upgrade.
const planPatience = 5 * time.Second

// answering returns nil if the cluster doesn't answer, which is why people roll back an upgrade.
func answering(c cluster.Cluster) cluster.Cluster {
	ctx, cancel := context.WithTimeout(context.Background(), AskTimeout)
	defer cancel()
	if c.Ready(ctx) != nil {
		return nil
	}
	return c
}

// APIParts read from the plan's cluster.
func (p Planning) APIParts(kubeconfig UserKubeconfig, form, command string) (*Parts, error) {
	if err := plan.CheckForm(form); err != nil {
		return nil, errors.WithMessage(err, "--dry-run prints a plan")
	}
	record := &plan.Plan{Form: form, Command: command}
	api := cluster.NewPlan(record.AddCluster, UserCluster(kubeconfig, config.DefaultLimits().KubernetesAPICall))
	env := &step.Env{Machine: config.DefaultMachine(), Cluster: api}
	return p.parts(linux.New(), plan.UI{UI: newPlanUI(p.G), Plan: record}, env), nil
}

func (p Planning) nodeParts(node *config.Node, real *linux.Host, api cluster.Cluster, said plan.UI) *Parts {
	members := etcd.NewPlan(said.Plan.AddEtcd, thisnode.KnownEtcdMembers(real, node.Paths)...)
	return p.parts(real, said, &step.Env{Config: node, Cluster: api, Etcd: members})
}

// parts give env a host that only records, in the plan of said. Phases run one after another, so that the same input gives the
// same plan.
func (p Planning) parts(real *linux.Host, said plan.UI, env *step.Env) *Parts {
	env.Host, env.UI = hostplan.NewOverlay(real, said.Plan.AddHost), said
	return &Parts{
		Env:     env,
		begin:   noLock,
		Confirm: func(func() error) error { return nil },
		Show:    func(func() error) error { return said.Plan.Write(p.G.Streams.Out) },
		Close:   real.Close,
		serial:  true,
	}
}

// presentCluster is the cluster of this host's admin.conf, to compare a plan with, or nil. It's only read from.
func presentCluster(node *config.Node, real *linux.Host) *cluster.Real {
	if _, err := real.Lstat(node.Paths.AdminKubeconfig); err != nil {
		return nil
	}
	return cluster.New(cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		ReadFile:   real.ReadFile,
		Endpoint:   localEndpoint(node),
		Timeout:    plan.CompareTimeout,
	})
}
