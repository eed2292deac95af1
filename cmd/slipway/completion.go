// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/upgrade"
	"github.com/slipway-k8s/slipway/preflight"
)

func newCompletion(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print the completion script of a shell: bash, zsh, fish or powershell",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(cmd.ValidArgs, args[0]) {
				return errors.Errorf("name one shell: %s", strings.Join(cmd.ValidArgs, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), g.Streams.Out
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return root.GenPowerShellCompletionWithDesc(out)
		},
	}
}

// addCompletions registers each flag's proposals. Only a shell's request needs them, so no other start of the program pays.
func addCompletions(cmd *cobra.Command) {
	if cmd.ValidArgs == nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions // only bundles are files, and say so themselves
	}
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		// Fails for flags with a completion already: cobra's own.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, valuesOf(f))
	})
	for _, c := range cmd.Commands() {
		addCompletions(c)
	}
}

// valuesOf goes by a flag's own values, or else by its placeholder in help.
func valuesOf(f *pflag.Flag) cobra.CompletionFunc {
	if values, ok := f.Annotations[config.ValuesAnnotation]; ok {
		return choice(func(*cobra.Command) []string { return values })
	}
	switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
	case "file":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case "directory":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case "phases":
		return choice(phasesOf)
	case "checks":
		return choice(checkNames)
	}
	return cobra.NoFileCompletions
}

// choice proposes values, even after others in a comma-separated list.
func choice(values func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		done := typed[:strings.LastIndex(typed, ",")+1]
		directive := cobra.ShellCompDirectiveNoFileComp
		var list []cobra.Completion
		for _, v := range values(cmd) {
			if strings.HasPrefix(done+v, typed) {
				list = append(list, done+v)
			}
			if strings.HasSuffix(v, "=") { // a template follows
				directive |= cobra.ShellCompDirectiveNoSpace
			}
		}
		return list, directive
	}
}

// commandOf is the command that a command, or one for a single phase of it, belongs to: "host reset" for
// `slipway host reset phase preflight`.
func commandOf(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	path, _, _ = strings.Cut(path, " phase ")
	return path
}

func phasesOf(cmd *cobra.Command) []string {
	prepare, host := &machine.Prepare{}, &config.Machine{}
	var workflow []step.Phase
	switch commandOf(cmd) {
	case "init":
		workflow = bootstrap.Init()
	case "join":
		workflow = bootstrap.Join()
	case "reset":
		workflow = reset.Node()
	case "upgrade apply":
		workflow = upgrade.Apply()
	case "upgrade node":
		workflow = upgrade.Node()
	case "host prepare":
		workflow = prepare.Phases()
	case "host reset":
		workflow = machine.Reset()
	case "up":
		workflow = slices.Concat(phases.Up(prepare, host), phases.UpJoin(prepare, host))
	case "down":
		workflow = phases.DownHost(host)
	}
	names := phaseNames("", workflow)
	slices.Sort(names)
	return slices.Compact(names)
}

func phaseNames(parent string, list []step.Phase) (names []string) {
	for _, p := range list {
		names = append(append(names, parent+p.Name), phaseNames(parent+p.Name+"/", p.Children)...)
	}
	return names
}

// checkNames are a command's checks, for --ignore-preflight-errors: those of a default control plane, unless it's about the host.
func checkNames(cmd *cobra.Command) []string {
	var checks []preflight.Check
	switch commandOf(cmd) {
	case "host prepare":
		checks = preflight.Prepare(config.DefaultMachine(), preflight.Preparation{})
	case "host reset":
		checks = preflight.HostReset(nil)
	default:
		self := &config.JoinConfiguration{ControlPlane: &config.JoinControlPlane{}}
		node, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, self, config.Options{Placeholders: true})
		if err != nil {
			return nil
		}
		return append(bootstrap.CheckNames(node), "all")
	}
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	return append(names, "all")
}
