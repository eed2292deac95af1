// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
)

func newKubeconfig(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Make kubeconfig files for users",
		RunE:  offerSubcommands,
	}
	cmd.AddCommand(newKubeconfigUser(g))
	return cmd
}

func newKubeconfigUser(g *globals) *cobra.Command {
	var user pki.User
	var token string
	o := &certOptions{offline: true}
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Print a kubeconfig file for a user, with a new client certificate or a token",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user.Name == "" {
				return errors.New("--client-name is needed: the name of the user")
			}
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := host.New()
			defer real.Close()
			user.Token = config.NewSecret(token)
			data, err := pki.Store{Config: node, Host: real, UI: newUI(g)}.UserKubeconfig(user)
			if err != nil {
				return err
			}
			_, err = g.streams.out.Write(data)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&user.Name, "client-name", "", "`name` of the user: the certificate's common name")
	fs.StringVar(&o.configFile, "config", "", "configuration `file`; - for standard input")
	fs.StringSliceVar(&user.Groups, "org", nil, "`groups` of the user: the certificate's organizations")
	fs.StringVar(&token, "token", "", "`token` that the user shows instead of a certificate")
	fs.DurationVar(&user.Validity, "validity-period", 365*24*time.Hour, "time that the certificate is valid")
	return cmd
}
