// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

// tokenOptions are the flags of all commands about tokens.
type tokenOptions struct{ config.Flags }

func newToken(g *globals) *cobra.Command {
	o := &tokenOptions{}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete the tokens with which nodes join",
		RunE:  requireSubcommand,
	}
	o.Bind(cmd.PersistentFlags(), "token")
	cmd.AddCommand(newTokenCreate(g, o), newTokenList(g, o), newTokenDelete(g, o), newTokenGenerate(g))
	return cmd
}

// parts are what a command about tokens works with. form is that of a plan.
func (o *tokenOptions) parts(cmd *cobra.Command, g *globals, tokens []config.Token, form string) *parts {
	kubeconfig := kubeconfigOfUser(cmd)
	return apiParts(g, config.APINode(kubeconfig.String(), tokens), kubeconfig, o.DryRun, form, "token "+cmd.Name())
}

func newTokenDelete(g *globals, o *tokenOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens from the cluster, each named by its ID or in full",
		Args:  takes(1, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = config.TokenID(text); err != nil {
					return errors.Wrapf(err, "argument %d", i+1)
				}
			}
			p := o.parts(cmd, g, nil, "text")
			if err := phases.DeleteTokens(cmd.Context(), p.env, ids); err != nil {
				return err
			}
			return p.finish()
		},
	}
}

func newTokenGenerate(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new token, without telling the cluster of it",
		Args:  takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			id, secret, err := makeToken()
			if err != nil {
				return err
			}
			newUI(g).Result(id + "." + secret)
			return nil
		},
	}
}
