// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/tokens"
)

func newToken(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete the tokens that nodes join with",
		RunE:  requireSubcommand,
	}
	new(config.Flags).Bind(cmd.PersistentFlags(), "token")
	cmd.AddCommand(newTokenCreate(g), newTokenList(g), newTokenDelete(g), newTokenGenerate(g))
	return cmd
}

// tokenParts are what a command for tokens works with. A plan is printed in form.
func tokenParts(cmd *cobra.Command, g *globals, tokens []config.Token, form string) (*parts, error) {
	kubeconfig := kubeconfigOfUser(cmd)
	return modeOfFlags(g, cmd).apiParts(config.APINode(kubeconfig.String(), tokens), kubeconfig, form, "token "+cmd.Name())
}

// tokensOf are the tokens of the cluster that a command works with.
func tokensOf(p *parts) tokens.Store {
	return tokens.Store{Cluster: p.env.Cluster, UI: p.env.UI, Now: p.env.Host.Now}
}

func newTokenDelete(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens from the cluster, by ID or full token",
		Args:  takes(1, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = config.TokenID(text); err != nil {
					return errors.Wrapf(err, "argument %d", i+1)
				}
			}
			p, err := tokenParts(cmd, g, nil, "text")
			if err != nil {
				return err
			}
			defer p.close()
			if err := tokensOf(p).Delete(cmd.Context(), ids); err != nil {
				return err
			}
			return p.show(func() error { return nil })
		},
	}
}

func newTokenGenerate(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new random token, without creating it in the cluster",
		Args:  takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			id, secret := config.NewToken()
			newUI(g).Result(id + "." + secret)
			return nil
		},
	}
}
