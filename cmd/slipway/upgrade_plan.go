// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases"
	"github.com/slipway-k8s/slipway/preflight"
)

type upgradePlanOptions struct {
	upgradeOptions
	output outputOptions
	diff   bool
}

func newUpgradePlan(g *globals) *cobra.Command {
	o := &upgradePlanOptions{}
	cmd := &cobra.Command{
		Use:   "plan [VERSION]",
		Short: "Show what the cluster can be upgraded to, and how",
		Long: "Show what runs on each node, what the cluster can be upgraded to, what stands in the way, and each step. " +
			"Without VERSION, the plan is for the newest releases that this program was built with. Nothing is changed, and only the cluster is contacted.",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	o.Bind(cmd.Flags(), "upgrade plan")
	o.output.bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.diff, "diff", false, "show what changes on this control plane and in the cluster")
	return cmd
}

func (o *upgradePlanOptions) run(cmd *cobra.Command, g *globals, args []string) error {
	if _, err := o.output.printer(nil); err != nil { // before anything is asked
		return err
	}
	in, err := o.read(cmd, g, "upgrade plan", args)
	if err != nil {
		return err
	}
	defer in.host.Close()
	said := newUI(g)
	warn(said, in.warnings)
	api, own := planCluster(cmd)
	p := &upgradePlanner{g: g, in: in, said: said, api: api, own: own, diff: o.diff, given: upgrading.Given{
		Config: o.ConfigFile, Patches: o.Patches, Kubeconfig: kubeconfigFlag(cmd), IgnorePreflightErrors: o.IgnorePreflightErrors}}
	result, err := p.plan(cmd.Context())
	if err != nil {
		return err
	}
	return o.output.print(g, result, func(_ runtime.Object, w io.Writer) error {
		if in.self.PrintConfig {
			if err := printStored(w, p.state.Stored); err != nil {
				return err
			}
		}
		return printUpgradePlan(w, result)
	})
}

// planCluster is this node's own cluster, or, for a user who may not read its admin.conf, the one that kubectl would use.
func planCluster(cmd *cobra.Command) (api *cluster.Real, own bool) {
	kubeconfig := kubeconfigOfUser(cmd)
	if f, err := os.Open(config.DefaultAdminKubeconfig); err == nil && kubeconfigFlag(cmd) == "" {
		_ = f.Close()
		kubeconfig, own = userKubeconfig{config.DefaultAdminKubeconfig}, true
	}
	node := config.APINode(kubeconfig.String(), nil)
	node.Timeouts.KubernetesAPICall = askTime
	return userCluster(node, kubeconfig), own
}

// upgradePlanner makes the plan of one command.
type upgradePlanner struct {
	g     *globals
	in    *upgradeInput
	said  ui.UI
	api   cluster.Cluster
	own   bool // see planCluster
	diff  bool
	given upgrading.Given
	state *upgrading.State
	// here reports whether this is a control plane of the cluster, whose files may be read.
	here bool
	// there is what an upgrade can break. It is collected once for all versions.
	there  *inventory.Inventory
	warned []string // what has been said of the stored configuration
}

func (p *upgradePlanner) plan(ctx context.Context) (*upgrading.Plan, error) {
	var err error
	if p.state, err = upgrading.Look(ctx, p.api); err != nil {
		return nil, err
	}
	if p.here = p.isHere(); !p.here {
		p.given.Kubeconfig = "" // it is not on the nodes
	}
	result := p.state.NewPlan(outputAPI)
	for _, offer := range p.offers() {
		u, err := p.upgrade(ctx, offer)
		if err != nil {
			return nil, err
		}
		result.Upgrades = append(result.Upgrades, *u)
	}
	return result, nil
}

// isHere reports whether this host is a control plane of this cluster and the user may read its files.
func (p *upgradePlanner) isHere() bool {
	if !thisnode.IsControlPlane(p.in.host) || p.in.host.EffectiveUID() != 0 {
		return false
	}
	name := thisnode.Current(p.in.host).NodeRegistration.Name
	if p.own {
		p.state.Count(name)
	}
	return slices.ContainsFunc(p.state.Nodes, func(n upgrading.NodeVersions) bool { return n.ControlPlane && n.Name == name })
}

// offers are the version that the user names, unless the cluster has it, or the ones that this program knows.
func (p *upgradePlanner) offers() []upgrading.Offer {
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

// settings are those of an upgrade to a version.
func (p *upgradePlanner) settings(target string) *config.Upgrade {
	u := p.in.self.Upgrade
	u.From, u.Version = p.state.Configured, target
	return &u
}

func (p *upgradePlanner) upgrade(ctx context.Context, offer upgrading.Offer) (*upgrading.Upgrade, error) {
	parts, record, err := p.parts(ctx, offer.Version)
	if err != nil {
		return nil, errors.WithMessagef(err, "an upgrade to %s", offer.Version)
	}
	if p.there == nil {
		if p.there, err = p.inventory(ctx, parts.env); err != nil {
			return nil, err
		}
	}
	patches, err := p.patches(ctx, parts.env)
	if err != nil {
		return nil, err
	}
	u, err := p.state.Upgrade(offer, upgrading.Route{Upgrade: *p.settings(offer.Version), Given: p.given, Patched: len(patches.Kept) > 0,
		Here: thisnode.Current(p.in.host).NodeRegistration.Name, Leader: p.leader()})
	if err != nil {
		return nil, err
	}
	u.Patches, u.DoubtfulPatches = shownPatches(patches.Kept), shownPatches(patches.Doubtful)
	checks := preflight.Questions(phases.PlanQuestions(ctx, parts.env, p.state, p.there, p.here))
	u.AddReport(preflight.Run(ctx, checks, p.in.host, p.in.self.IgnorePreflightErrors))
	if p.diff {
		u.Changes, err = p.changes(ctx, parts, record)
	}
	return u, errors.WithMessagef(err, "what an upgrade to %s changes", offer.Version)
}

// leader is the node whose member leads etcd; empty if nobody could be asked. kubeadm and Slipway name members after nodes.
func (p *upgradePlanner) leader() string {
	for _, m := range p.there.Members {
		if m.Leads() {
			return m.Name
		}
	}
	return ""
}

// parts are those of a dry run of the upgrade. On another host than a control plane, they have only the
// cluster's configuration.
func (p *upgradePlanner) parts(ctx context.Context, target string) (*parts, *plan, error) {
	if !p.here {
		node, _, err := config.LoadCluster(p.state.Stored, nil, nil, nil, config.Options{Version: target, AnyVersion: true, Placeholders: true})
		if err != nil {
			return nil, nil, err
		}
		node.Upgrade = p.settings(target)
		return &parts{env: &phases.Env{Config: node}}, nil, nil
	}
	self, options, limits := *p.in.self, p.in.options, *p.in.self.Timeouts
	limits.KubernetesAPICall = &metav1.Duration{Duration: askTime} // as that of p.api
	limits.UpgradeManifests = limits.KubernetesAPICall             // a plan waits for nothing that starts
	self.Version, self.Timeouts, options.AnyVersion = target, &limits, true
	node, warnings, err := upgrading.Node(ctx, p.api, p.in.host, p.said.Printf, &self, options)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		if !slices.Contains(p.warned, w) {
			p.warned = append(p.warned, w)
			p.said.Warn(w, "")
		}
	}
	if p.given.Kubeconfig != "" {
		node.Paths.AdminKubeconfig = p.given.Kubeconfig
	}
	parts, record := planning{p.g, true}.recorded(node, p.in.host)
	return parts, record, nil
}

// inventory collects what an upgrade can break. It only reads, so it asks etcd itself, and not that of the plan.
func (p *upgradePlanner) inventory(ctx context.Context, env *phases.Env) (*inventory.Inventory, error) {
	sources := inventory.Sources{API: p.api, State: p.state}
	if !p.here {
		return inventory.Collect(ctx, sources)
	}
	sources.Etcd = newEtcd(env.Config, p.in.host, p.api, p.said)
	if options := clusterOptions(env.Config, p.in.host); options.Endpoint != "" {
		sources.Own = cluster.New(options)
	}
	return phases.Inventory(ctx, env, p.state, sources)
}

// patches are those that keep the operator's edits of this host.
func (p *upgradePlanner) patches(ctx context.Context, env *phases.Env) (phases.EditPatches, error) {
	if !p.here {
		return phases.EditPatches{}, nil
	}
	return phases.PatchesOfEdits(ctx, env)
}

// shownPatches are patches without the values of environment variables.
func shownPatches(files []config.PatchFile) []upgrading.PatchFile {
	var shown []upgrading.PatchFile
	for _, f := range files {
		shown = append(shown, upgrading.PatchFile{Name: f.Name, Content: redact.Document(string(f.Data))})
	}
	return shown
}

// changes are those that the upgrade would make on this host and in the cluster. They need the files of a control plane.
func (p *upgradePlanner) changes(ctx context.Context, parts *parts, record *plan) ([]upgrading.Change, error) {
	if !p.here {
		p.said.Warn("the changes are not shown, because they depend on the files of a control plane", "run this as root on a control plane")
		return nil, nil
	}
	parts.env.Config.Upgrade.CertificateRenewal = false // its keys are random
	parts.env.UI = planUI{quiet{p.said}, record}
	err := phases.Run(ctx, parts.env, phases.WholeUpgrade(), phases.Options{Skip: []string{"preflight"}, Serial: true})
	return changesOf(record, filepath.Join(parts.env.Config.Paths.Kubernetes, "tmp")), err
}

// changesOf are the changes in a plan that stay: not backups in tmp.
func changesOf(record *plan, tmp string) []upgrading.Change {
	changes := []upgrading.Change{}
	for _, s := range record.steps {
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

// quiet does not show warnings of a run that does not happen: what they report is in the changes.
type quiet struct{ ui.UI }

func (quiet) Warn(string, string)  {}
func (quiet) Warnf(string, ...any) {}

func (q quiet) Start(phase string) (ui.UI, func(error)) { return q, func(error) {} }
