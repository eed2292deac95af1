// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

func newJoin(g *globals) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Make this host a node of a cluster that exists",
		Long: "Make this host a node of a cluster that exists, whose API server is at HOST:PORT.\n\n" +
			"The phases, in order (each also alone, as `join phase NAME`):\n" + phaseTree(phases.Join(), "  "),
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := loadJoin(cmd, g, o, args)
			if err != nil {
				return err
			}
			p.env.Again = phases.HasBegun(p.env.Host, p.env.Config)
			return p.run(cmd.Context(), phases.Join(), p.env.Config.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "join")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "join", phases.Join(), runnableJoinPhase))
	return cmd
}

// loadJoin makes the one desired state after it has found the cluster, and the
// parts that bring it about.
func loadJoin(cmd *cobra.Command, g *globals, o *joinOptions, args []string) (*parts, error) {
	if err := o.take(cmd, g, args); err != nil {
		return nil, err
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, err
	}
	opts := loadOptions(facts, o.DryRun)
	self, warnings, err := config.LoadJoin(src, o.Flags, opts)
	if err != nil {
		return nil, err
	}
	d := &phases.Discovery{Host: real, Connect: joining(self.Timeouts.KubernetesAPICall.Duration), Options: opts}
	var end func(error)
	d.UI, end = discoveryUI(g, self.DryRun).Start("discovery")
	seek := d.Node
	if !asksCluster(g, self.DryRun) {
		seek = d.Assume
	}
	node, more, err := seek(cmd.Context(), self)
	end(err)
	if err != nil && self.DryRun && asksCluster(g, true) {
		return nil, fmt.Errorf("%w; a plan without --diff needs no cluster", err)
	}
	if err != nil {
		return nil, err
	}
	p := newParts(g, node, real, self.DryRun)
	warn(p.env.UI, slices.Concat(warnings, more))
	return p, nil
}

// take completes the flags by the argument and by what is in files.
func (o *joinOptions) take(cmd *cobra.Command, g *globals, args []string) error {
	o.Given = given(cmd.Flags())
	if len(args) > 0 {
		o.Endpoint = args[0]
	}
	if o.TokenFile == "" {
		return nil
	}
	if slices.Contains(o.Given, "token") {
		return errors.New("--token and --token-file exclude each other")
	}
	token, err := readSecret(cmd.Context(), g, o.TokenFile)
	if err != nil {
		return errors.Wrap(err, "--token-file")
	}
	o.Token, o.Given = token, append(slices.DeleteFunc(o.Given, func(s string) bool { return s == "token-file" }), "token")
	return nil
}
