// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

// newPreflight asks this host what init or join would ask it first, and does
// nothing. Alone, it asks what init does.
func newPreflight(g *globals) *cobra.Command {
	cmd := preflightInitCommand(g, "preflight", "Check this host, and do nothing")
	cmd.Long = cmd.Short + ": what init checks, or with `preflight join` what join checks.\n\n" +
		"It exits with 1 if init or join would refuse."
	cmd.AddCommand(
		preflightInitCommand(g, "init", "Check that this host can become the first control plane"),
		preflightJoinCommand(g))
	return cmd
}

func preflightInitCommand(g *globals, use, short string) *cobra.Command {
	o, out := &initOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check := newCheckup("init")
			node, parts, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.close()
			check.Node = node.Name
			found, err := phases.CheckInit(cmd.Context(), parts.env)
			if err != nil {
				return err
			}
			for _, r := range found {
				check.add(r.Check, string(r.Outcome()), r.Message(), r.Took)
			}
			return check.report(g, out)
		},
	}
	o.Bind(cmd.Flags(), "preflight init")
	out.bind(cmd.Flags())
	return cmd
}

func preflightJoinCommand(g *globals) *cobra.Command {
	o, out := &joinOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Check that this host can join a cluster, and where one is named, that one",
		Args:  takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			check := newCheckup("join")
			env, end, err := joiningHost(cmd, g, o, args, check)
			if err != nil {
				return err
			}
			defer end()
			found, err := phases.CheckJoin(cmd.Context(), env)
			if err != nil {
				return err
			}
			for _, r := range found {
				check.add(r.Check, string(r.Outcome()), r.Message(), r.Took)
			}
			return check.report(g, out)
		},
	}
	o.Bind(cmd.Flags(), "preflight join")
	out.bind(cmd.Flags())
	return cmd
}

// discoveryLimit is shorter than the time that a join has: this is a question,
// not a wait.
const discoveryLimit = 3 * time.Second

// joiningHost is the node as it would join. A cluster that is named is asked,
// and whether it answers is a check of its own; without one, or where it does
// not answer, defaults stand in for what it would say.
func joiningHost(cmd *cobra.Command, g *globals, o *joinOptions, args []string, check *checkup) (env *phases.Env, end func(), err error) {
	if err := o.take(cmd, g, args); err != nil {
		return nil, nil, err
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	named := src != nil || o.Endpoint != "" || o.DiscoveryFile != ""
	if !named { // the other flags are read as if one was
		o.Endpoint, o.Token, o.SkipCAVerification = "127.0.0.1:6443", "abcdef.0123456789abcdef", true
		o.Given = append(o.Given, "token", "discovery-token-unsafe-skip-ca-verification")
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, nil, err
	}
	opts := loadOptions(facts, true)
	opts.Placeholders = true
	self, warnings, err := config.LoadJoin(src, o.Flags, opts)
	if err != nil {
		return nil, nil, err
	}
	env = &phases.Env{Host: real, UI: newUI(g)}
	var more []string
	if named {
		env.Config, more = discovered(cmd.Context(), env, self, opts, check)
	} else {
		check.add("Discovery", "skipped", "no cluster is named", 0)
	}
	warn(env.UI, slices.Concat(warnings, more))
	if env.Config == nil {
		if env.Config, _, err = config.LoadCluster(config.DefaultCluster(), nil, nil, self, opts); err != nil {
			return nil, nil, err
		}
		env.Config.Join = &config.Join{CAPath: self.CACertPath}
	}
	check.Node = env.Config.Name
	return env, real.Close, nil
}

// discovered is the node of the cluster that self names, nil if that does not
// answer well.
func discovered(ctx context.Context, env *phases.Env, self *config.JoinConfiguration, opts config.Options, check *checkup) (*config.Node, []string) {
	start := time.Now()
	self.Timeouts.Discovery.Duration = min(self.Timeouts.Discovery.Duration, discoveryLimit)
	d := &phases.Discovery{Host: env.Host, UI: env.UI, Connect: joining(discoveryLimit), Options: opts}
	node, warnings, err := d.Node(ctx, self)
	if err != nil {
		check.add("Discovery", "error", err.Error(), time.Since(start))
		return nil, warnings
	}
	check.add("Discovery", "ok", "", time.Since(start))
	return node, warnings
}
