// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func Given(fs *pflag.FlagSet) []string {
	var names []string
	fs.Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

func numbered(arguments int) string {
	if arguments == 1 {
		return "one argument"
	}
	return strconv.Itoa(arguments) + " arguments"
}

const AnyNumber = math.MaxInt

// RejectArguments makes commands reject arguments, unless they have a limit of their own.
func RejectArguments(commands []*cobra.Command) {
	for _, cmd := range commands {
		if cmd.Args == nil {
			cmd.Args = Takes(0, 0)
		}
		RejectArguments(cmd.Commands())
	}
}

// Takes rejects fewer than least or more than most arguments. It doesn't repeat arguments that may be tokens.
func Takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		name := cmd.CommandPath()
		switch {
		case len(args) < least:
			return errors.Errorf("%s needs an argument: %s; see %s --help", name, cmd.Use, name)
		case len(args) > most && most == 0:
			return errors.Errorf("%s does not take the argument %q; see %s --help", name, args[0], name)
		case len(args) > most:
			return errors.Errorf("%s takes %s but got %d: %s; see %s --help", name, numbered(most), len(args), cmd.Use, name)
		}
		return nil
	}
}

func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: requireSubcommand}
	cmd.AddCommand(commands...)
	return cmd
}

// requireSubcommand prints help to standard output, like kubeadm, and fails because nothing was done.
func requireSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return noSuchCommand(cmd, args[0])
	}
	if err := cmd.Help(); err != nil {
		return err
	}
	return errors.Errorf("%s needs a subcommand; see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

// OfferSubcommands is the RunE of groups that succeed in kubeadm: the program itself and `kubeconfig`.
func OfferSubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return noSuchCommand(cmd, args[0])
}

func noSuchCommand(cmd *cobra.Command, name string) error {
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return errors.Errorf("%s has no command %q%s; see %s --help", cmd.CommandPath(), name, hint, cmd.CommandPath())
}

// FailUnknownHelp makes `help` fail for commands that don't exist. cobra's own prints another command's help.
func FailUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		cmd.Run = nil
		cmd.RunE = func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return noSuchCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
}
