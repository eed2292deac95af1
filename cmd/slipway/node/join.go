// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
)

type joinOptions struct {
	config.JoinFlags

	anyRuntime bool // see InitOptions
}

func NewJoin(g *cli.Globals) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Join this host to an existing cluster",
		Long:  "Join this host to the existing cluster whose API server is at HOST:PORT.",
		Args:  cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := loadJoin(cmd, g, o, args)
			if err != nil {
				return err
			}
			begin(cmd.Context(), p)
			if g.EmulatesKubeadm() {
				p.Last = cli.JoinedLines(p.Env.Config)
			}
			return p.Run(cmd.Context(), bootstrap.Join(), p.Env.Config.SkipPhases)
		},
	}
	env.Workflow{Name: "join", Phases: bootstrap.Join(), Single: joinPhase}.AddTo(cmd, g, &o.JoinFlags)
	return cmd
}

// beginPhase looks for an unfinished run, before a single phase.
func beginPhase(ctx context.Context, p *env.Parts) {
	p.Env.Unfinished = bootstrap.DetectEarlierRun(ctx, p.Env).Unfinished
}

func loadJoin(cmd *cobra.Command, g *cli.Globals, o *joinOptions, args []string) (*env.Parts, error) {
	if err := o.take(cmd, g, args); err != nil {
		return nil, err
	}
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	o.relax(in)
	return o.parts(cmd.Context(), g, in)
}

// relax is for phases that start no kubelet, so its requirements aren't in their way.
func (o *joinOptions) relax(in *env.Input) {
	if o.anyRuntime {
		in.AnyRuntime()
		in.Options.Existing = true
	}
}

// parts finds the cluster, and loads the desired state from input that's already been read.
func (o *joinOptions) parts(ctx context.Context, g *cli.Globals, in *env.Input) (*env.Parts, error) {
	self, warnings, err := config.LoadJoin(in.File, o.JoinFlags, in.Options)
	if err != nil {
		return nil, err
	}
	m := env.ModeOfJoin(g, self)
	node, more, err := m.Discover(ctx, in.Host, self, in.Options)
	if err != nil {
		return nil, err
	}
	p := m.Parts(node, in.Host)
	cli.Warn(p.Env.UI, slices.Concat(warnings, more))
	return p, nil
}

// take adds the argument and the token in a file to the flags.
func (o *joinOptions) take(cmd *cobra.Command, g *cli.Globals, args []string) error {
	o.Given = cli.Given(cmd.Flags())
	if len(args) > 0 {
		o.Endpoint = args[0]
	}
	return o.takeToken(cmd.Context(), g)
}

func (o *joinOptions) takeToken(ctx context.Context, g *cli.Globals) error {
	if o.TokenFile == "" {
		return nil
	}
	if o.Given.Has("token") {
		return errors.New("--token and --token-file cannot be used together")
	}
	token, err := cli.ReadSecret(ctx, g, o.TokenFile)
	if err != nil {
		return errors.Wrap(err, "--token-file")
	}
	o.Token, o.Given = token, append(slices.DeleteFunc(o.Given, func(s string) bool { return s == "token-file" }), "token")
	return nil
}

func joinPhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &joinOptions{anyRuntime: !bootstrap.ChoosesRuntime(p.Phase)}
	cmd := p.Command(g, &o.JoinFlags, func(cmd *cobra.Command, args []string) error {
		parts, err := loadJoinPhase(cmd, g, o, p.Phase, args)
		if err != nil {
			return err
		}
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
	if discovers(p.Phase) {
		cmd.Use += " [HOST:PORT]"
		cmd.Args = cli.Takes(0, 1)
	}
	return cmd
}

func discovers(p step.Phase) bool { return slices.Contains(p.Flags, "discovery-file") }

func loadJoinPhase(cmd *cobra.Command, g *cli.Globals, o *joinOptions, p step.Phase, args []string) (*env.Parts, error) {
	if !discovers(p) {
		return loadJoined(cmd, g, o, p)
	}
	parts, err := loadJoin(cmd, g, o, args)
	if err == nil {
		beginPhase(cmd.Context(), parts)
	}
	return parts, err
}

// loadJoined is for phases after discovery. They use the configuration file, if given, and earlier phases' files on this host.
// Control planes' phases also read the cluster's configuration, as its administrator.
func loadJoined(cmd *cobra.Command, g *cli.Globals, o *joinOptions, p step.Phase) (*env.Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	o.relax(in)
	self, warnings := o.self(cmd, in.Host), []string(nil)
	if in.File != nil {
		if self, warnings, err = config.LoadJoin(in.File, o.JoinFlags, in.Options); err != nil {
			return nil, err
		}
	}
	m := env.ModeOfJoin(g, self)
	var node *config.Node
	var more []string
	if self.ControlPlane != nil && slices.Contains(p.Flags, "control-plane") {
		node, more, err = m.Joined(cmd.Context(), in.Host, self, in.Options)
	} else {
		node, err = joining.StartedNode(in.Host, self, in.Options)
	}
	if err != nil {
		return nil, err
	}
	parts := m.Parts(node, in.Host)
	cli.Warn(parts.Env.UI, slices.Concat(warnings, more))
	return parts, nil
}

// self describes the node by the command line and this host's files.
func (o *joinOptions) self(cmd *cobra.Command, h host.Host) *config.JoinConfiguration {
	self := thisnode.Current(h)
	env.KeepMode(cmd, self)
	r, at := &self.NodeRegistration, &self.ControlPlane.LocalAPIEndpoint
	r.CRISocket, r.Name = cmp.Or(o.CRISocket, r.CRISocket), cmp.Or(o.NodeName, r.Name)
	at.AdvertiseAddress = cmp.Or(o.APIServerAdvertiseAddress, at.AdvertiseAddress)
	if o.Given.Has("apiserver-bind-port") {
		at.BindPort = o.APIServerBindPort
	}
	if o.Patches != "" {
		self.Patches = &config.Patches{Directory: o.Patches}
	}
	if !o.ControlPlane && !thisnode.IsControlPlane(h) {
		self.ControlPlane = nil
	}
	return self
}
