// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// requireSubcommand is the RunE of a command that only groups others: it prints help to standard output, as kubeadm does,
// and fails because nothing was done.
func requireSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return noSuchCommand(cmd, args[0])
	}
	if err := cmd.Help(); err != nil {
		return err
	}
	return errors.Errorf("%s needs a subcommand; see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

// offerSubcommands is the RunE of groups that succeed in kubeadm: the program itself and `kubeconfig`.
func offerSubcommands(cmd *cobra.Command, args []string) error {
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

// honestHelp makes `help` fail for commands that do not exist. cobra's own prints the help of another command.
func honestHelp(root *cobra.Command) {
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
