// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/profile"
)

func newProfile(g *cli.Globals) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "profile NAME",
		Short: "Print a configuration with the settings of a hardening profile, and the profile's files",
		Long: "Print the ClusterConfiguration and the KubeletConfiguration with the settings of a hardening profile, audit, cis or cis-strict, and\n" +
			"then the files that the API server reads. Each document after the configuration begins with its path on a control plane.\n" +
			"`slipway init --profile NAME` applies all of it.",
		Args:      cli.Takes(1, 1),
		ValidArgs: profile.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := cli.ReadConfigFile(cmd.Context(), g, file)
			if err != nil {
				return err
			}
			data, warnings, err := config.PrintProfile(args[0], src)
			if err != nil {
				return err
			}
			cli.Warn(cli.NewUI(g), warnings)
			_, err = g.Streams.Out.Write(data)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `file` to add the profile's settings to, - for standard input")
	return cmd
}
