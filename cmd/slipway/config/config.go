// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package config has the command `config`, which works with configuration files: it prints defaults, validates and migrates files,
// and prints hardening profiles. It also lists a configuration's images and pulls them to this host.
package config

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
)

func New(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("config", "Work with configuration files and images", newPrint(g), newValidate(g), newMigrate(g), newProfile(g), newImages(g))
	config.Bind(cmd.PersistentFlags(), "config", nil) // kubeadm has the flag; nothing here asks a cluster
	return cmd
}

func newPrint(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("print", "Print a default configuration")
	for _, name := range []string{"init", "join", "reset", "upgrade"} {
		cmd.AddCommand(newPrintDefaults(g, name))
	}
	return cmd
}

func newPrintDefaults(g *cli.Globals, name string) *cobra.Command {
	var components []string
	cmd := &cobra.Command{
		Use:   name + "-defaults",
		Short: "Print the default configuration for " + name + ", with placeholders for values without a default",
		RunE: func(*cobra.Command, []string) error {
			real := linux.New()
			defer real.Close()
			hostname, err := real.Hostname()
			if err != nil {
				return err
			}
			data, err := config.PrintDefaults(name, components, config.HostFacts{Hostname: hostname})
			if err != nil {
				return err
			}
			_, err = g.Streams.Out.Write(data)
			return err
		},
	}
	if name == "init" {
		cmd.Flags().StringSliceVar(&components, "component-configs", nil,
			"`kinds` of component configurations to print as well: KubeletConfiguration, KubeProxyConfiguration")
		cli.Offer(cmd.Flags(), "component-configs", "KubeletConfiguration", "KubeProxyConfiguration")
	}
	return cmd
}

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

func newMigrate(g *cli.Globals) *cobra.Command {
	var from, to string
	var experimental bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert a configuration file to the latest API version, with defaults filled in",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := requiredInput(cmd.Context(), g, "old-config", from)
			if err != nil {
				return err
			}
			in.Options.Experimental = experimental
			data, warnings, err := config.Migrate(cmd.Context(), *in.File, in.Options)
			if err != nil {
				return err
			}
			cli.Warn(cli.NewUI(g), warnings)
			if to == "" {
				_, err = g.Streams.Out.Write(data)
				return err
			}
			return writeConfig(to, data)
		},
	}
	cmd.Flags().StringVar(&from, "old-config", "", "configuration `file` to convert, - for standard input")
	cmd.Flags().StringVar(&to, "new-config", "", "`file` to write; standard output by default")
	bindExperimental(cmd, &experimental)
	return cmd
}

// writeConfig makes the configuration readable only by its owner, because it may hold tokens. It follows the user's symlinks, and
// also writes to special files, such as the pipe /dev/stdout can be.
func writeConfig(path string, data []byte) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(abs); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o600) // creates nothing
	}
	real := linux.New()
	defer real.Close()
	_, err = real.WriteSecret(linked(abs), data)
	return err
}

// linked follows the symlinks at path, whether or not anything exists at their end.
func linked(path string) string {
	for range 40 { // as many as Linux follows
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // .. is relative to the directory's real path
			if err != nil {
				break
			}
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return path
}
