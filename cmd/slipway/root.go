// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/bundle"
	"github.com/slipway-k8s/slipway/cmd/slipway/certs"
	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/config"
	"github.com/slipway-k8s/slipway/cmd/slipway/diagnose"
	"github.com/slipway-k8s/slipway/cmd/slipway/encryption"
	"github.com/slipway-k8s/slipway/cmd/slipway/etcd"
	"github.com/slipway-k8s/slipway/cmd/slipway/node"
	"github.com/slipway-k8s/slipway/cmd/slipway/reconfigure"
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
	cli.RejectArguments(root.Commands())
	cli.FailUnknownHelp(root)
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
		{"reconfigure", reconfigure.New},
		{"encryption", encryption.New},
		{"config", config.New},
		{"completion", newCompletion},
		{"token", token.New},
		{"certs", certs.New},
		{"kubeconfig", certs.NewKubeconfig},
		{"etcd", etcd.New},
		{"preflight", node.NewPreflight},
		{"diagnose", diagnose.New},
		{"support-bundle", diagnose.NewSupportBundle},
		{"check", diagnose.NewCheck},
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

// flagError explains an error in a command's flags. If the command lacks a flag, it names commands that have it.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if owners := commandsWith(cmd.Root().Name(), unknown.GetSpecifiedName()); len(owners) > 0 {
			text += fmt.Sprintf("; %s does not have it, but %s", cmd.CommandPath(), listed(owners))
		}
	}
	return errors.Errorf("%s; see %s --help", text, cmd.CommandPath())
}

const maxOwners = 5

func listed(commands []string) string {
	have := "have"
	if len(commands) == 1 {
		have = "has"
	}
	names := strings.Join(commands[:min(maxOwners, len(commands))], ", ")
	if more := len(commands) - maxOwners; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names + " " + have
}

// commandsWith returns the commands with a flag, by name or letter, shortest first; no phases if a whole command has the flag.
func commandsWith(program, flag string) []string {
	var all, whole []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if has(c, flag) && (c.Runnable() || !c.HasSubCommands()) {
			path := strings.TrimPrefix(c.CommandPath(), program+" ")
			if all = append(all, path); !strings.Contains(path, "phase ") {
				whole = append(whole, path)
			}
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(newRoot(program, cli.Streams{}, nil))
	if len(whole) > 0 {
		all = whole
	}
	words := func(path string) int { return strings.Count(path, " ") }
	return slices.SortedStableFunc(slices.Values(all), func(a, b string) int { return words(a) - words(b) })
}

// has reports whether a command itself takes a flag, not only its subcommands.
func has(c *cobra.Command, flag string) bool {
	find := func(fs *pflag.FlagSet) bool {
		return fs.Lookup(flag) != nil || len(flag) == 1 && fs.ShorthandLookup(flag) != nil
	}
	return slices.ContainsFunc([]*pflag.FlagSet{c.LocalNonPersistentFlags(), c.PersistentFlags()}, find)
}
