// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package config has the command `config`.
package config

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
)

func New(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("config", "Work with configuration files and images", newPrint(g), newValidate(g), newMigrate(g), newImages(g))
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
			facts, err := printFacts()
			if err != nil {
				return err
			}
			data, err := config.PrintDefaults(name, components, facts)
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

func printFacts() (config.HostFacts, error) {
	real := linux.New()
	defer real.Close()
	name, err := real.Hostname()
	return config.HostFacts{Hostname: name}, err
}
