// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/phases"
)

// planning shows what acting would do, and changes nothing.
type planning struct {
	g *globals
	// diff compares the plan with this host and its cluster. Without it, no cluster is asked.
	diff bool
}

// options have placeholders for secrets, so that the same input gives the same plan.
func (planning) options(facts config.HostFacts) config.Options {
	return config.Options{
		Facts:             facts,
		NewToken:          placeholderTokens(),
		NewCertificateKey: func() (string, error) { return strings.Repeat("0", 64), nil },
		Resolve:           config.ResolveLabel,
	}
}

// placeholderTokens generates tokens whose IDs differ, as those of one configuration must.
func placeholderTokens() func() (id, secret string, err error) {
	ids := 0
	return func() (id, secret string, err error) {
		if id = "abcdef"; ids > 0 {
			id = fmt.Sprintf("abc%03d", ids)
		}
		ids++
		return id, "0123456789abcdef", nil
	}
}

func (planning) checkReport(r *report) error {
	if r.timelineFile != "" {
		return errors.New("--timeline does not go with --dry-run, which runs nothing that takes time")
	}
	return nil
}

func (p planning) sinks(r *report) sinks { return sinks{ui: plainUI(p.g, r.command)} }

func (p planning) discover(ctx context.Context, real *host.Real, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	said, end := planUI{newPlanUI(p.g), nil}.Start("discovery")
	d := newDiscovery(real, said, self.Timeouts.KubernetesAPICall.Duration, opts)
	if !p.diff {
		node, warnings, err := d.Assume(ctx, self)
		end(err)
		return node, warnings, err
	}
	node, warnings, err := d.Node(ctx, self)
	end(err)
	const other = "without --diff, a plan needs no cluster"
	return node, warnings, fault.WithRemedy(err, strings.TrimPrefix(fault.Remedy(err)+"; "+other, "; "))
}

func (p planning) joined(ctx context.Context, real *host.Real, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	if p.diff {
		return joining.JoinedNode(ctx, administrator(real), self, opts)
	}
	node, err := joining.AssumedControlPlane(self, opts)
	return node, nil, err
}

func (p planning) stored(ctx context.Context, real *host.Real) ([]byte, []string, error) {
	if p.diff {
		return acting{p.g}.stored(ctx, real)
	}
	return config.DefaultCluster(), nil, nil
}

func (p planning) parts(node *config.Node, real *host.Real) *parts {
	parts, _ := p.recorded(node, real)
	return parts
}

// recorded returns parts, and the plan that they record.
func (p planning) recorded(node *config.Node, real *host.Real) (*parts, *plan) {
	record := &plan{form: "text", node: node.Name}
	if r := p.g.report; r != nil {
		record.form, record.command = r.form, r.command
	}
	if node.Join != nil && node.Join.Assumed {
		record.assumed = &assumed{node}
	}
	said := newPlanUI(p.g)
	node.Timeouts.UpgradeManifests = min(node.Timeouts.UpgradeManifests, planPatience)
	var live cluster.Cluster
	if node.Upgrade != nil { // what is there decides what an upgrade does
		live = answering(cluster.New(clusterOptions(node, real)))
	}
	api := cluster.NewPlan(record.addCluster, live)
	if p.diff {
		record.now, record.warn = newPresent(real), said.Warnf
		if now := presentCluster(node, real); now != nil {
			api.CompareWith(now)
		}
	}
	return newPlanParts(p.g, node, real, record, api, planUI{said, record}), record
}

// planPatience is how long a plan waits for another control plane that is being upgraded.
const planPatience = 5 * time.Second

// answering returns nil for a cluster that does not answer: people go back from an upgrade because of that.
func answering(c cluster.Cluster) cluster.Cluster {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if c.Ready(ctx) != nil {
		return nil
	}
	return c
}

// apiParts read from the cluster that the plan is for.
func (p planning) apiParts(node *config.Node, kubeconfig userKubeconfig, form, command string) (*parts, error) {
	if err := checkPlanForm(form); err != nil {
		return nil, errors.WithMessage(err, "--dry-run prints a plan")
	}
	record := &plan{form: form, command: command}
	api := cluster.NewPlan(record.addCluster, userCluster(node, kubeconfig))
	return newPlanParts(p.g, node, host.New(), record, api, planUI{newPlanUI(p.g), record}), nil
}

// newPlanParts only record. Phases run one after another, so that the same input gives the same plan.
func newPlanParts(g *globals, node *config.Node, real *host.Real, record *plan, api cluster.Cluster, said planUI) *parts {
	return &parts{
		env: &phases.Env{
			Config:  node,
			Host:    host.NewOverlay(real, record.addHost),
			Cluster: api,
			Etcd:    etcd.NewPlan(record.addEtcd, etcdmember.Known(real, node)...),
			UI:      said,
		},
		begin:   func() (func(), error) { return func() {}, nil },
		confirm: func(func() error) error { return nil },
		show:    func(func() error) error { return record.write(g.streams.out) },
		close:   real.Close,
		serial:  true,
	}
}

// compareTime limits a request to a cluster that a plan is compared with, which may be down.
const compareTime = 2 * time.Second

// presentCluster is the cluster to compare a plan with: the one whose admin.conf this host has, or nil. It is only read
// from.
func presentCluster(node *config.Node, real *host.Real) *cluster.Real {
	if _, err := real.Lstat(node.Paths.AdminKubeconfig); err != nil {
		return nil
	}
	return cluster.New(cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		ReadFile:   real.ReadFile,
		Endpoint:   localEndpoint(node),
		Timeout:    compareTime,
	})
}
