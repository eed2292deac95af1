// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/ui"
)

var reportFlags = []string{"output", "diff", "timeline"}

// Reporting gives cmd, which runs phases, a report with its flags.
func Reporting(g *cli.Globals, cmd *cobra.Command) {
	r := &cli.Report{}
	r.Bind(cmd.Flags())
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := open(g, cmd, r); err != nil {
			return err
		}
		err := run(cmd, args)
		r.Close(g, err)
		return err
	}
}

// open begins a command's report. It rejects incompatible flags, before anything is done.
func open(g *cli.Globals, cmd *cobra.Command, r *cli.Report) error {
	if r.Diff {
		if err := askForPlan(cmd.Flags()); err != nil {
			return err
		}
	}
	if err := checkPrintManifest(cmd.Flags()); err != nil {
		return err
	}
	if err := plan.CheckForm(r.Form); err != nil {
		return err
	}
	m := ModeOfFlags(g, cmd)
	if err := m.checkReport(r); err != nil {
		return err
	}
	_, r.Command, _ = strings.Cut(cmd.CommandPath(), " ")
	r.Sinks, g.Report = m.sinks(r), r
	return nil
}

// checkPrintManifest rejects a report's flags next to --print-manifest.
func checkPrintManifest(fs *pflag.FlagSet) error {
	if fs.Lookup("print-manifest") == nil || !fs.Changed("print-manifest") {
		return nil
	}
	var given []string
	for _, name := range reportFlags {
		if fs.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) == 0 {
		return nil
	}
	return errors.Errorf("--print-manifest only prints objects: leave out %s", strings.Join(given, ", "))
}

// replan replaces a run's sinks by a plan's: the flags asked for a run, the configuration file for a plan.
func replan(g *cli.Globals) {
	r := g.Report
	if r == nil {
		return
	}
	if r.Events != nil || r.Timeline != nil {
		r.Sinks = Planning{G: g}.sinks(r)
	}
}

func newPlanUI(g *cli.Globals) ui.UI {
	replan(g)
	return g.ShownUI()
}
