// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

func newConfig(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print, check and convert configuration files, list images",
		RunE:  requireSubcommand,
	}
	new(config.Flags).Bind(cmd.PersistentFlags(), "config") // kubeadm has the flag; nothing here asks a cluster
	cmd.AddCommand(newConfigPrint(g), newConfigValidate(g), newConfigMigrate(g), newConfigImages(g))
	return cmd
}

func newConfigPrint(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the default configuration of a command",
		RunE:  requireSubcommand,
	}
	for _, name := range []string{"init", "join", "reset", "upgrade"} {
		cmd.AddCommand(newPrintDefaults(g, name))
	}
	return cmd
}

func newPrintDefaults(g *globals, name string) *cobra.Command {
	var components []string
	cmd := &cobra.Command{
		Use:   name + "-defaults",
		Short: "Print the default configuration of " + name + ", with placeholders for what only you know",
		Args:  takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			facts, err := printFacts()
			if err != nil {
				return err
			}
			data, err := config.PrintDefaults(name, components, facts)
			if err != nil {
				return err
			}
			_, err = g.streams.out.Write(data)
			return err
		},
	}
	if name == "init" {
		cmd.Flags().StringSliceVar(&components, "component-configs", nil,
			"`kinds` of component configurations to print as well: KubeletConfiguration, KubeProxyConfiguration")
		offer(cmd.Flags(), "component-configs", "KubeletConfiguration", "KubeProxyConfiguration")
	}
	return cmd
}

func printFacts() (config.HostFacts, error) {
	real := host.New()
	defer real.Close()
	name, err := real.Hostname()
	return config.HostFacts{Hostname: name}, err
}

func newConfigValidate(g *globals) *cobra.Command {
	o := &config.Flags{}
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration file and report every fault in it",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := requiredConfigFile(cmd.Context(), g, "config", o.ConfigFile)
			if err != nil {
				return err
			}
			opts, err := fileOptions()
			if err != nil {
				return err
			}
			opts.Now = time.Now
			warnings, err := config.Validate(cmd.Context(), *src, opts)
			if err != nil {
				return err
			}
			ui := newUI(g)
			warn(ui, warnings)
			ui.Result("ok")
			return nil
		},
	}
	o.Bind(cmd.Flags(), "config validate")
	acceptAPIFlags(cmd, "allow-deprecated-api", "allow-experimental-api")
	return cmd
}

func newConfigMigrate(g *globals) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert a configuration file to the newest version of its API, defaults filled in",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := requiredConfigFile(cmd.Context(), g, "old-config", from)
			if err != nil {
				return err
			}
			opts, err := fileOptions()
			if err != nil {
				return err
			}
			data, warnings, err := config.Migrate(cmd.Context(), *src, opts)
			if err != nil {
				return err
			}
			warn(newUI(g), warnings)
			if to == "" {
				_, err = g.streams.out.Write(data)
				return err
			}
			return writeConfig(to, data)
		},
	}
	cmd.Flags().StringVar(&from, "old-config", "", "configuration `file` to convert; - reads standard input")
	cmd.Flags().StringVar(&to, "new-config", "", "output `file`; standard output by default")
	acceptAPIFlags(cmd, "allow-experimental-api")
	return cmd
}

// writeConfig writes a configuration, which may hold tokens, for its owner
// only. It goes where the user's links lead to, and to what is no file, such as
// the pipe that /dev/stdout can be.
func writeConfig(path string, data []byte) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(abs); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o600) // which makes no file
	}
	real := host.New()
	defer real.Close()
	_, err = real.WriteSecret(linked(abs), data)
	return err
}

// linked is where the links at path end, though nothing may be there.
func linked(path string) string {
	for range 40 { // as many as Linux follows
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			folder, err := filepath.EvalSymlinks(filepath.Dir(path)) // .. is above what it leads to
			if err != nil {
				break
			}
			target = filepath.Join(folder, target)
		}
		path = target
	}
	return path
}

func requiredConfigFile(ctx context.Context, g *globals, flag, path string) (*config.Source, error) {
	if path == "" {
		return nil, errors.Errorf("--%s is required: the file to read", flag)
	}
	return readConfigFile(ctx, g, path)
}

// fileOptions are what loading a file takes from outside when nothing is made
// of it: placeholders for what the host would say and for secrets.
func fileOptions() (config.Options, error) {
	real, facts, err := hostFacts()
	if err != nil {
		return config.Options{}, err
	}
	real.Close()
	return loadOptions(facts, false), nil
}

// acceptAPIFlags accepts flags of kubeadm that have no effect here: every API version that can be read is read.
func acceptAPIFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Bool(name, false, "accepted for compatibility and ignored: every known API version is read")
	}
}
