// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/phases/step"
)

// chosen are the deliberate differences from kubeadm's defaults; the README lists them.
var chosen = map[string]string{
	"kubernetes-version": "v1.37.2", // kubeadm asks the network for stable-1
}

// TestCommandTree compares the commands and flags with kubeadm's.
func TestCommandTree(t *testing.T) {
	f, err := os.Open("../../testdata/golden/cli.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root := newRoot("slipway", cli.Streams{}, nil)
	rows := bufio.NewScanner(f)
	rows.Scan() // the heading
	checked := 0
	for rows.Scan() {
		cells := strings.Split(rows.Text(), "\t")
		path := strings.Fields(cells[0])
		checked++
		cmd, rest, err := root.Find(path)
		if err != nil || len(rest) > 0 {
			t.Errorf("no command %q", cells[0])
			continue
		}
		if cells[1] != "-" {
			checkFlag(t, cmd, cells)
		}
	}
	if checked < 250 {
		t.Errorf("%d rows checked only", checked)
	}
}

// checkFlag compares a flag with a row: command, flag, shorthand, type, default.
func checkFlag(t *testing.T, cmd *cobra.Command, row []string) {
	t.Helper()
	name := strings.TrimPrefix(row[1], "--")
	flag := lookup(cmd, name)
	if flag == nil {
		t.Errorf("%q has no flag --%s", row[0], name)
		return
	}
	want := row[4]
	if c, ok := chosen[name]; ok {
		want = c
	}
	got := []string{flag.Shorthand, strings.Replace(flag.Value.Type(), "stringSlice", "strings", 1), plainDefault(flag)}
	if wanted := []string{row[2], row[3], want}; !slices.Equal(got, wanted) {
		t.Errorf("%q --%s is %q, want %q", row[0], name, got, wanted)
	}
}

func lookup(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.LocalFlags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

// plainDefault writes a default like the table: nothing for a type's zero value.
func plainDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "[]", "false", "0":
		return ""
	}
	return f.DefValue
}

func TestEveryCommandHasWords(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%q has no summary", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			placeholder, _ := pflag.UnquoteUsage(f)
			if f.Usage == "" || strings.Contains(placeholder, " ") || f.Value.Type() == "bool" && placeholder != "" {
				t.Errorf("%q --%s has the usage %q", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot("slipway", cli.Streams{}, nil))
}

// TestPhasesReport: every command that runs phases can be planned, and has output for programs.
func TestPhasesReport(t *testing.T) {
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		workflow, _, _ := strings.Cut(strings.TrimPrefix(cmd.CommandPath(), "slipway "), " ")
		if !slices.Contains([]string{"init", "join", "reset", "reconfigure"}, workflow) || cmd.Name() == "phase" || cmd.Hidden ||
			cmd.Parent().Name() != "slipway" && cmd.HasSubCommands() {
			return
		}
		found++
		for _, name := range []string{"dry-run", "output", "diff", "timeline"} {
			if cmd.LocalFlags().Lookup(name) == nil {
				t.Errorf("%q has no flag --%s", cmd.CommandPath(), name)
			}
		}
	}
	walk(newRoot("slipway", cli.Streams{}, nil))
	if found < 40 {
		t.Errorf("%d commands only", found)
	}
}

// TestGroupsFail: a group of commands fails without a subcommand. kubeadm's `kubeconfig` and the program itself don't.
func TestGroupsFail(t *testing.T) {
	runnable := []string{"slipway", "slipway kubeconfig", "slipway init", "slipway join", "slipway reset", "slipway preflight",
		"slipway upgrade apply", "slipway upgrade node", "slipway host prepare", "slipway host reset", "slipway reconfigure"}
	groups := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if !cmd.HasSubCommands() || slices.Contains(runnable, cmd.CommandPath()) {
			return
		}
		groups++
		for _, more := range []string{"", "no-such-command"} {
			var out, errs bytes.Buffer
			args := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "slipway") + " " + more)
			code := execute(t.Context(), "slipway", cli.Streams{Out: &out, Err: &errs}, args)
			if code != 1 || (out.Len() > 0) != (more == "") || !strings.Contains(errs.String(), cmd.CommandPath()) {
				t.Errorf("%q ends with %d, prints %d bytes, says %q", args, code, out.Len(), errs.String())
			}
		}
	}
	walk(newRoot("slipway", cli.Streams{}, nil))
	if groups < 15 {
		t.Errorf("%d groups only", groups)
	}
}

// TestPhasesNameKnownFlags compares the names in Phase.Flags with the flag table.
func TestPhasesNameKnownFlags(t *testing.T) {
	checked := 0
	var walk func(workflow string, list []step.Phase)
	walk = func(workflow string, list []step.Phase) {
		for _, p := range list {
			fs := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
			config.BindPhase(fs, workflow, p.Flags, nil)
			for _, name := range p.Flags {
				checked++
				if fs.Lookup(name) == nil {
					t.Errorf("phase %s of %s: there is no flag --%s in internal/config/flag_table.go", p.Name, workflow, name)
				}
			}
			walk(workflow, p.Children)
		}
	}
	walk("init", bootstrap.Init())
	walk("join", bootstrap.Join())
	walk("reset", reset.Node())
	walk("host prepare", (&machine.Prepare{}).Phases())
	walk("host reset", machine.Reset())
	if checked < 200 {
		t.Errorf("%d names only", checked)
	}
}

// TestHelp: every command's help comes on standard output, and names the command and --help.
func TestHelp(t *testing.T) {
	var paths [][]string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		paths = append(paths, strings.Fields(cmd.CommandPath())[1:])
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot("slipway", cli.Streams{}, nil))
	if len(paths) < 50 {
		t.Errorf("%d commands only", len(paths))
	}
	for _, path := range paths {
		var out, errs bytes.Buffer
		root := newRoot("slipway", cli.Streams{Out: &out, Err: &errs}, nil)
		root.SetArgs(append(path, "--help"))
		if err := root.ExecuteContext(t.Context()); err != nil || errs.Len() > 0 {
			t.Errorf("%v --help: error %v, %s", path, err, errs.String())
		}
		want := strings.Join(append([]string{"slipway"}, path...), " ")
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "--help") {
			t.Errorf("%v --help says\n%s", path, out.String())
		}
	}
}
