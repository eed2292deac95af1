// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
)

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
