// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases"
)

func newJoin(g *globals) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Join this host to an existing cluster",
		Long: "Join this host to the existing cluster whose API server is at HOST:PORT.\n\n" +
			"It runs these phases in order; `join phase NAME` runs one alone:\n" + phaseTree(phases.Join(), "  "),
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := loadJoin(cmd, g, o, args)
			if err != nil {
				return err
			}
			p.beginJoin()
			if g.asPeer() {
				p.last = joinedLines(p.env.Config)
			}
			return p.run(cmd.Context(), phases.Join(), p.env.Config.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "join")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "join", phases.Join(), runnableJoinPhase))
	return cmd
}

// beginJoin looks at what a whole run of join begins with.
func (p *parts) beginJoin() { p.env.Again = thisnode.HasBegun(p.env.Host, p.env.Config) }

// loadJoin finds the cluster, loads the desired state, and makes the parts to work with.
func loadJoin(cmd *cobra.Command, g *globals, o *joinOptions, args []string) (*parts, error) {
	if err := o.take(cmd, g, args); err != nil {
		return nil, err
	}
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	o.relax(in)
	return o.parts(cmd.Context(), g, in)
}

// relax is for a phase that starts no kubelet, so that what the kubelet cannot have is not in its way.
func (o *joinOptions) relax(in *nodeInput) {
	if o.anyRuntime {
		in.anyRuntime()
		in.options.Existing = true
	}
}

// parts finds the cluster, and loads the desired state from input that is read already.
func (o *joinOptions) parts(ctx context.Context, g *globals, in *nodeInput) (*parts, error) {
	self, warnings, err := config.LoadJoin(in.file, o.Flags, in.options)
	if err != nil {
		return nil, err
	}
	m := modeOfJoin(g, self)
	node, more, err := m.discover(ctx, in.host, self, in.options)
	if err != nil {
		return nil, err
	}
	p := m.parts(node, in.host)
	warn(p.env.UI, slices.Concat(warnings, more))
	return p, nil
}

// take adds to the flags the argument, and what is in a file.
func (o *joinOptions) take(cmd *cobra.Command, g *globals, args []string) error {
	o.Given = given(cmd.Flags())
	if len(args) > 0 {
		o.Endpoint = args[0]
	}
	return o.takeToken(cmd.Context(), g)
}

// takeToken adds to the flags the token of --token-file.
func (o *joinOptions) takeToken(ctx context.Context, g *globals) error {
	if o.TokenFile == "" {
		return nil
	}
	if slices.Contains(o.Given, "token") {
		return errors.New("--token and --token-file cannot be used together")
	}
	token, err := readSecret(ctx, g, o.TokenFile)
	if err != nil {
		return errors.Wrap(err, "--token-file")
	}
	o.Token, o.Given = token, append(slices.DeleteFunc(o.Given, func(s string) bool { return s == "token-file" }), "token")
	return nil
}
