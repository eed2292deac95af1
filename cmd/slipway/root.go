// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/bundle"
	"github.com/slipway-k8s/slipway/cmd/slipway/certs"
	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/config"
	"github.com/slipway-k8s/slipway/cmd/slipway/diagnose"
	"github.com/slipway-k8s/slipway/cmd/slipway/node"
	"github.com/slipway-k8s/slipway/cmd/slipway/token"
	"github.com/slipway-k8s/slipway/cmd/slipway/upgrade"
)

func newRoot(program string, s cli.Streams, args []string) *cobra.Command {
	g := &cli.Globals{Program: program, Version: func() string { return thisBuild().version }, Streams: s}
	root := &cobra.Command{
		Use:               program,
		Short:             "Turn a Linux host into a Kubernetes node",
		Args:              cobra.ArbitraryArgs,
		RunE:              cli.OfferSubcommands,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return g.Apply() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(flagError)
	g.Bind(root.PersistentFlags())
	root.SetArgs(args)
	for _, make := range wanted(args) {
		root.AddCommand(make(g))
	}
	cli.TakeNothing(root.Commands())
	cli.HonestHelp(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		addCompletions(root)
	}
	return root
}

type maker func(*cli.Globals) *cobra.Command

// wanted returns only the command named by the first argument: making them all costs each start a millisecond and a megabyte.
// Anything else (help, completion, a flag, a mistake) gets all commands.
func wanted(args []string) []maker {
	commands := []struct {
		name string
		make maker
	}{
		{"up", node.NewUp},
		{"init", node.NewInit},
		{"join", node.NewJoin},
		{"host", node.NewHost},
		{"reset", node.NewReset},
		{"down", node.NewDown},
		{"upgrade", upgrade.New},
		{"config", config.New},
		{"completion", newCompletion},
		{"token", token.New},
		{"certs", certs.New},
		{"kubeconfig", certs.NewKubeconfig},
		{"preflight", node.NewPreflight},
		{"diagnose", diagnose.New},
		{"support-bundle", diagnose.NewSupportBundle},
		{"bundle", bundle.New},
		{"version", newVersion},
	}
	var all []maker
	for _, c := range commands {
		if len(args) > 0 && args[0] == c.name && c.name != "completion" {
			return []maker{c.make}
		}
		all = append(all, c.make)
	}
	return all
}
