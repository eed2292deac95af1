// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/reset"
)

// askingPhase asks for confirmation; skipping it skips the question.
const askingPhase = "preflight"

const undoesNode = "This undoes what init or join did to this host: its Pods are stopped, and its certificates, settings\n" +
	"and copy of the cluster's data are deleted."

// confirmReset shows text and asks whether to proceed, unless --force is given. No answer means no.
func confirmReset(ctx context.Context, g *cli.Globals, p *env.Parts, text string) error {
	if p.Env.Config.Reset.Force {
		return nil
	}
	return p.Confirm(func() error {
		return cli.AskBefore(ctx, g, text, "--force")
	})
}

type resetOptions struct {
	config.ResetFlags

	anyRuntime bool // see InitOptions
}

func NewReset(g *cli.Globals) *cobra.Command {
	o := &resetOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo `init` or `join` on this host",
		Long: "Undo `init` or `join` on this host: its Pods are stopped, and its certificates, settings and copy of the\n" +
			"cluster's data are deleted. It continues if the rest of the cluster cannot be reached.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := loadReset(cmd, g, o)
			if err != nil {
				return err
			}
			skip := p.Env.Config.SkipPhases
			if !slices.Contains(skip, askingPhase) {
				if err := confirmReset(cmd.Context(), g, p, undoesNode); err != nil {
					return err
				}
			}
			return p.Run(cmd.Context(), reset.Node(), skip)
		},
	}
	env.Workflow{Name: "reset", Phases: reset.Node(), Single: resetPhase}.AddTo(cmd, g, &o.ResetFlags)
	cmd.AddCommand(newResetNode(g))
	return cmd
}

func resetPhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &resetOptions{anyRuntime: !slices.Contains(p.Flags, "cri-socket")}
	return p.Command(g, &o.ResetFlags, func(cmd *cobra.Command, _ []string) error {
		parts, err := loadReset(cmd, g, o)
		if err != nil {
			return err
		}
		if p.Name == askingPhase {
			if err := confirmReset(cmd.Context(), g, parts, undoesNode); err != nil {
				return err
			}
		}
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
}

func loadReset(cmd *cobra.Command, g *cli.Globals, o *resetOptions) (*env.Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	return o.load(cmd, g)
}

// load takes the kubelet's container runtime unless the user names another.
func (o *resetOptions) load(cmd *cobra.Command, g *cli.Globals) (*env.Parts, error) {
	if o.Network && g.Rootfs != "" {
		return nil, errors.New("--network changes this host's kernel, and --rootfs another host's files: use only one of them")
	}
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	if socket := thisnode.KubeletSocket(in.Host); socket != "" {
		in.Options.Facts.Sockets = []string{strings.TrimPrefix(socket, "unix://")}
	}
	if o.anyRuntime {
		in.AnyRuntime()
	}
	node, warnings, err := config.LoadReset(in.File, o.ResetFlags, in.Options)
	if err != nil {
		return nil, err
	}
	// The report needs these, but the files with them are gone in the end.
	node = node.With(func(n *config.Node) {
		n.Name, n.ControlPlane = thisnode.Current(in.Host).NodeRegistration.Name, thisnode.IsControlPlane(in.Host)
	})
	return env.NewParts(g, node, in.Host, warnings...), nil
}
