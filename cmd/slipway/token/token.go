// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package token has the command `token`.
package token

import (
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/tokens"
)

func New(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("token", "Create, list and delete the tokens that nodes join with",
		newCreate(g), newList(g), newDelete(g), newGenerate(g))
	config.Bind(cmd.PersistentFlags(), "token", nil)
	return cmd
}

// newParts makes a token command's parts. A plan is printed in form.
func newParts(cmd *cobra.Command, g *cli.Globals, tokens []config.Token, form string) (*env.Parts, error) {
	kubeconfig := env.KubeconfigOfUser(cmd)
	return env.ModeOfFlags(g, cmd).APIParts(config.APINode(kubeconfig.String(), tokens), kubeconfig, form, "token "+cmd.Name())
}

func store(p *env.Parts) tokens.Store {
	return tokens.Store{Cluster: p.Env.Cluster, UI: p.Env.UI, Now: p.Env.Host.Now}
}

func newDelete(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens from the cluster, by ID or full token",
		Args:  cli.Takes(1, cli.AnyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = config.TokenID(text); err != nil {
					return errors.Wrapf(err, "argument %d", i+1)
				}
			}
			p, err := newParts(cmd, g, nil, "text")
			if err != nil {
				return err
			}
			defer p.Close()
			if err := store(p).Delete(cmd.Context(), ids); err != nil {
				return err
			}
			return p.Show(func() error { return nil })
		},
	}
}

func newGenerate(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new random token, without creating it in the cluster",
		RunE: func(*cobra.Command, []string) error {
			id, secret := config.NewToken()
			cli.NewUI(g).Result(id + "." + secret)
			return nil
		},
	}
}

func newList(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens in the cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newParts(cmd, g, nil, "text")
			if err != nil {
				return err
			}
			defer p.Close()
			tokens, err := store(p).List(cmd.Context())
			if err != nil {
				return err
			}
			now := p.Env.Host.Now()
			list := make([]*object, len(tokens))
			for i, t := range tokens {
				list[i] = newObject(t, now)
			}
			return cli.PrintList(out, g, list, func(w io.Writer) error { return table(w, list, now) })
		},
	}
	out.Bind(cmd.Flags())
	return cmd
}
