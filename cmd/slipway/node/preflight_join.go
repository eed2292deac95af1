// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
)

func preflightJoinCommand(g *cli.Globals) *cobra.Command {
	o, out := &joinOptions{}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Check whether this host can join a cluster, and reach it if HOST:PORT is given",
		Args:  cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			check := newCheckup("join")
			if err := o.take(cmd, g, args); err != nil {
				return err
			}
			in, err := env.ReadInput(cmd.Context(), g, env.Planning{G: g}, o.ConfigFile)
			if err != nil {
				return err
			}
			defer in.Host.Close()
			env, err := o.joiningHost(cmd.Context(), g, in, check)
			if err != nil {
				return err
			}
			found, err := bootstrap.CheckJoin(cmd.Context(), env)
			if err != nil {
				return err
			}
			check.addAll(found)
			return check.report(g, out)
		},
	}
	config.Bind(cmd.Flags(), "preflight join", &o.JoinFlags)
	out.Bind(cmd.Flags())
	return cmd
}

// discoveryLimit is shorter than a join's timeout: preflight asks once and doesn't wait.
const discoveryLimit = 3 * time.Second

// joiningHost is this host as it would join. If a cluster is named, its answer is a check of its own. Defaults stand in for a
// missing cluster or answer.
func (o *joinOptions) joiningHost(ctx context.Context, g *cli.Globals, in *env.Input, check *checkup) (*step.Env, error) {
	named := in.File != nil || o.Endpoint != "" || o.DiscoveryFile != ""
	if !named { // the other flags need a cluster to be valid
		o.Endpoint, o.Token, o.SkipCAVerification = "127.0.0.1:6443", "abcdef.0123456789abcdef", true
		o.Given = append(o.Given, "token", "discovery-token-unsafe-skip-ca-verification")
	}
	in.Options.Placeholders = true
	self, warnings, err := config.LoadJoin(in.File, o.JoinFlags, in.Options)
	if err != nil {
		return nil, err
	}
	env := &step.Env{Host: in.Host, UI: cli.NewUI(g)}
	var more []string
	if named {
		env.Config, more = discovered(ctx, env.UI, self, in, check)
	} else {
		check.add("Discovery", "skipped", "no cluster is named", "", 0)
	}
	cli.Warn(env.UI, slices.Concat(warnings, more))
	if env.Config == nil {
		node, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, self, in.Options)
		if err != nil {
			return nil, err
		}
		env.Config = node.With(func(n *config.Node) { n.Join = &config.Join{CAPath: self.CACertPath} })
	}
	check.Node = env.Config.Name
	return env, nil
}

// discovered returns the node as part of self's cluster, or nil if discovery fails.
func discovered(ctx context.Context, said ui.UI, self *config.JoinConfiguration, in *env.Input, check *checkup) (*config.Node, []string) {
	start := time.Now()
	self.Timeouts.Discovery.Duration = min(self.Timeouts.Discovery.Duration, discoveryLimit)
	node, warnings, err := env.NewDiscovery(in.Host, said, discoveryLimit, in.Options).Node(ctx, self)
	if err != nil {
		check.add("Discovery", "error", err.Error(), fault.Remedy(err), time.Since(start))
		return nil, warnings
	}
	check.add("Discovery", "ok", "", "", time.Since(start))
	return node, warnings
}
