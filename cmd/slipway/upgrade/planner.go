// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/upgrade"
	"github.com/slipway-k8s/slipway/preflight"
)

type planner struct {
	g     *cli.Globals
	in    *input
	said  ui.UI
	api   cluster.Cluster
	own   bool // see planCluster
	diff  bool
	given upgrading.Given
	state *upgrading.State
	// here reports whether this is one of the cluster's control planes, and its files may be read.
	here bool
	// there has everything an upgrade can break. It's collected once for all versions.
	there  *inventory.Inventory
	warned []string // about the stored configuration
}

func (p *planner) plan(ctx context.Context) (*upgrading.Plan, error) {
	var err error
	if p.state, err = upgrading.Look(ctx, p.api); err != nil {
		return nil, err
	}
	if p.here = p.isHere(); !p.here {
		p.given.Kubeconfig = "" // it isn't on the nodes
	}
	result := p.state.NewPlan(cli.OutputAPI)
	for _, offer := range p.offers() {
		u, err := p.upgrade(ctx, offer)
		if err != nil {
			return nil, err
		}
		result.Upgrades = append(result.Upgrades, *u)
	}
	return result, nil
}

// isHere reports whether this host is one of this cluster's control planes, and the user may read its files.
func (p *planner) isHere() bool {
	if !thisnode.IsControlPlane(p.in.Host) || p.in.Host.EffectiveUID() != 0 {
		return false
	}
	name := thisnode.Current(p.in.Host).NodeRegistration.Name
	if p.own {
		p.state.Count(name)
	}
	return slices.ContainsFunc(p.state.Nodes, func(n upgrading.NodeVersions) bool { return n.ControlPlane && n.Name == name })
}

// offers are the user's version, unless the cluster has it, or the versions this program knows.
func (p *planner) offers() []upgrading.Offer {
	target := p.in.self.Version
	if target == "" {
		return p.state.Offers()
	}
	if offer := p.state.Named(target); offer != nil {
		return []upgrading.Offer{*offer}
	}
	for _, r := range upgrading.Refusals(p.settings(target), p.state.Nodes) {
		p.said.Warn(r.Message, r.Remedy)
	}
	return nil
}

func (p *planner) settings(target string) *config.Upgrade {
	u := p.in.self.Upgrade
	u.From, u.Version = p.state.Configured, target
	return &u
}

func (p *planner) upgrade(ctx context.Context, offer upgrading.Offer) (*upgrading.Upgrade, error) {
	parts, record, err := p.parts(ctx, offer.Version)
	if err != nil {
		return nil, errors.WithMessagef(err, "an upgrade to %s", offer.Version)
	}
	if p.there == nil {
		if p.there, err = p.inventory(ctx, parts.Env); err != nil {
			return nil, err
		}
	}
	first, err := p.firstStep(ctx, parts, offer.Version)
	if err != nil {
		return nil, err
	}
	var patches edits.Patches // keep the operator's edits on this host
	if first != nil {
		if patches, err = edits.PatchesOf(ctx, first); err != nil {
			return nil, err
		}
	}
	u, err := p.state.Upgrade(offer, upgrading.Route{Upgrade: *p.settings(offer.Version), Given: p.given, Patched: len(patches.Kept) > 0,
		Here: thisnode.Current(p.in.Host).NodeRegistration.Name, Leader: p.leader()})
	if err != nil {
		return nil, err
	}
	u.Patches, u.DoubtfulPatches = shownPatches(patches.Kept), shownPatches(patches.Doubtful)
	checks := upgrade.PlanQuestions(ctx, parts.Env, first, p.state, p.there)
	u.AddReport(preflight.Run(ctx, checks, p.in.Host, p.in.self.IgnorePreflightErrors))
	if p.diff {
		u.Changes, err = p.changes(ctx, parts, record)
	}
	return u, errors.WithMessagef(err, "what an upgrade to %s changes", offer.Version)
}

// leader is the node whose member leads etcd; empty if nobody could be asked. kubeadm and Slipway name members after nodes.
func (p *planner) leader() string {
	for _, m := range p.there.Members {
		if m.Leads() {
			return m.Name
		}
	}
	return ""
}

// parts belong to a dry run of the upgrade. Away from a control plane, they have only the cluster's configuration.
func (p *planner) parts(ctx context.Context, target string) (*env.Parts, *plan.Plan, error) {
	if !p.here {
		node, _, err := config.LoadCluster(p.state.Stored, nil, nil, nil, config.Options{Version: target, AnyVersion: true, Placeholders: true})
		if err != nil {
			return nil, nil, err
		}
		node = node.With(func(n *config.Node) { n.Upgrade = p.settings(target) })
		return &env.Parts{Env: &step.Env{Config: node}}, nil, nil
	}
	self, options, limits := *p.in.self, p.in.Options, *p.in.self.Timeouts
	limits.KubernetesAPICall = &metav1.Duration{Duration: env.AskTimeout} // like p.api's
	limits.UpgradeManifests = limits.KubernetesAPICall                    // a plan waits for nothing to start
	self.Version, self.Timeouts, options.AnyVersion = target, &limits, true
	node, warnings, err := upgrading.Source{API: p.api, Host: p.in.Host, Options: options, Say: p.said.Printf}.Node(ctx, &self)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		if !slices.Contains(p.warned, w) {
			p.warned = append(p.warned, w)
			p.said.Warn(w, "")
		}
	}
	parts, record := env.Planning{G: p.g, Diff: true}.Recorded(node, p.in.Host)
	return parts, record, nil
}

// inventory collects everything an upgrade can break. It only reads, so it asks the real etcd instead of the plan's.
func (p *planner) inventory(ctx context.Context, e *step.Env) (*inventory.Inventory, error) {
	sources := inventory.Sources{API: p.api, State: p.state}
	if !p.here {
		return inventory.Collect(ctx, sources)
	}
	sources.Etcd = env.NewEtcd(e.Config, p.in.Host, p.api, p.said)
	if options := env.ClusterOptions(e.Config, p.in.Host); options.Endpoint != "" {
		sources.Own = cluster.New(options)
	}
	return upgrade.Inventory(ctx, e, p.state, sources)
}

// firstStep is for this host's first step to the target, for which its patches, images and edits count; nil away from a control plane.
func (p *planner) firstStep(ctx context.Context, parts *env.Parts, target string) (*step.Env, error) {
	if !p.here {
		return nil, nil
	}
	first := p.state.FirstStep(thisnode.Current(p.in.Host).NodeRegistration.Name, target)
	if first == target {
		return parts.Env, nil
	}
	parts, _, err := p.parts(ctx, first)
	if err != nil {
		return nil, errors.WithMessagef(err, "an upgrade to %s", first)
	}
	return parts.Env, nil
}

func shownPatches(files []config.PatchFile) []upgrading.PatchFile {
	var shown []upgrading.PatchFile
	for _, f := range files {
		shown = append(shown, upgrading.PatchFile{Name: f.Name, Content: redact.Document(string(f.Data))})
	}
	return shown
}

// changes are the upgrade's changes on this host and in the cluster. They need a control plane's files.
func (p *planner) changes(ctx context.Context, parts *env.Parts, record *plan.Plan) ([]upgrading.Change, error) {
	if !p.here {
		p.said.Warn("the changes are not shown, because they depend on the files of a control plane", "run this as root on a control plane")
		return nil, nil
	}
	parts.Env.UI = plan.UI{UI: quiet{p.said}, Plan: record}
	err := step.Run(ctx, parts.Env, upgrade.PlanPhases(), step.Options{Skip: []string{"preflight"}, Serial: true})
	return changesOf(record, node.BackupRoot(parts.Env)), err
}

// changesOf lists a plan's lasting changes: no backups in tmp.
func changesOf(record *plan.Plan, tmp string) []upgrading.Change {
	changes := []upgrading.Change{}
	for _, s := range record.Steps {
		name := s.Path
		if s.Object != nil {
			name = s.Object.Kind + " " + strings.TrimPrefix(s.Object.Namespace+"/"+s.Object.Name, "/")
		}
		if s.Diff == "" || strings.HasPrefix(s.Path, tmp+"/") {
			continue
		}
		changes = append(changes, upgrading.Change{Name: name, Diff: s.Diff})
	}
	return changes
}

// quiet hides the warnings of a run that doesn't happen: the changes have the same facts.
type quiet struct{ ui.UI }

func (quiet) Warn(string, string) {}

func (quiet) Warnf(string, ...any) {}

func (q quiet) Start(phase string) (ui.UI, func(error)) { return q, func(error) {} }
