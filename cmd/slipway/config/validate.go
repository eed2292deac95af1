// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
)

func newValidate(g *cli.Globals) *cobra.Command {
	var file string
	var experimental bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration file and report all errors in it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := requiredInput(cmd.Context(), g, "config", file)
			if err != nil {
				return err
			}
			in.Options.Now, in.Options.Experimental = time.Now, experimental
			warnings, err := config.Validate(cmd.Context(), *in.File, in.Options)
			if err != nil {
				return err
			}
			ui := cli.NewUI(g)
			cli.Warn(ui, warnings)
			ui.Result("ok")
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `file`, - for standard input")
	cmd.Flags().Bool("allow-deprecated-api", false, "accepted, and not needed: deprecated versions of the API are always read")
	bindExperimental(cmd, &experimental)
	return cmd
}

// requiredInput reads the file of a mandatory flag.
func requiredInput(ctx context.Context, g *cli.Globals, flag, path string) (*env.Input, error) {
	if path == "" {
		return nil, errors.Errorf("--%s is required: the file to read", flag)
	}
	in, err := env.ReadInput(ctx, g, env.Acting{G: g}, path)
	if err != nil {
		return nil, err
	}
	in.AnyRuntime()
	in.Host.Close()
	return in, nil
}

func bindExperimental(cmd *cobra.Command, experimental *bool) {
	cmd.Flags().BoolVar(experimental, "allow-experimental-api", false, "also read experimental versions of the API")
}
