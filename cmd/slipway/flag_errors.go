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

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

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

const mostOwners = 5

func listed(commands []string) string {
	have := "have"
	if len(commands) == 1 {
		have = "has"
	}
	names := strings.Join(commands[:min(mostOwners, len(commands))], ", ")
	if more := len(commands) - mostOwners; more > 0 {
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
