// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
)

func NewKubeconfig(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("kubeconfig", "Create kubeconfig files for users", newKubeconfigUser(g))
	cmd.RunE = cli.OfferSubcommands
	return cmd
}

func newKubeconfigUser(g *cli.Globals) *cobra.Command {
	var user pki.User
	var token string
	o := &options{offline: true}
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Print a kubeconfig for a user, with a new client certificate or a token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user.Name == "" {
				return errors.New("--client-name is required: the name of the user")
			}
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := linux.New()
			defer real.Close()
			user.Token = config.NewSecret(token)
			data, err := pki.Store{Config: node, Host: real, UI: cli.NewUI(g)}.UserKubeconfig(user)
			if err != nil {
				return err
			}
			_, err = g.Streams.Out.Write(data)
			return err
		},
	}
	fs := cmd.Flags()
	config.Bind(fs, "kubeconfig user", &o.CertsFlags)
	fs.StringVar(&user.Name, "client-name", "", "user `name`, the common name (CN) of the certificate")
	fs.StringSliceVar(&user.Groups, "org", nil, "user `groups`, the organizations (O) of the certificate")
	fs.StringVar(&token, "token", "", "`token` that authenticates the user instead of a certificate")
	fs.DurationVar(&user.Validity, "validity-period", 365*24*time.Hour, "validity of the certificate")
	return cmd
}
