// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"sync"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// report is the output of a command that runs phases, in addition to kubeadm's: its flags, and what they make the run
// show. docs/machine-output.md describes it.
type report struct {
	form         string // of the output: text, json, yaml
	timelineFile string
	diff         bool

	command string
	sinks

	mu    sync.Mutex
	node  *config.Node
	files []ui.File
}

// sinks are where a report sends progress.
type sinks struct {
	ui       ui.UI
	events   *ui.Events   // nil without -o json
	timeline *ui.Timeline // nil without --timeline
}

// reportFlags are the flags that a report adds to a command.
var reportFlags = []string{"output", "diff", "timeline"}

// reporting gives cmd, which runs phases, a report with its flags.
func reporting(g *globals, cmd *cobra.Command) {
	r := &report{}
	r.bind(cmd.Flags())
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.open(g, cmd); err != nil {
			return err
		}
		err := run(cmd, args)
		r.close(g, err)
		return err
	}
}

func (r *report) bind(fs *pflag.FlagSet) {
	fs.StringVarP(&r.form, "output", "o", "text", "output `format`: text, json (a plan with --dry-run, events otherwise) or yaml (plans only)")
	offer(fs, "output", "text", "json", "yaml")
	fs.StringVar(&r.timelineFile, "timeline", "", "write the times of all phases to `file`, as Chrome trace events")
	fs.BoolVar(&r.diff, "diff", false, "show the differences from what is there now; implies --dry-run")
}

// open begins the report of a command. It rejects flags that do not go together, before anything is done.
func (r *report) open(g *globals, cmd *cobra.Command) error {
	if r.diff {
		if err := askForPlan(cmd.Flags()); err != nil {
			return err
		}
	}
	if err := r.checkPrintManifest(cmd.Flags()); err != nil {
		return err
	}
	if err := checkPlanForm(r.form); err != nil {
		return err
	}
	m := modeOfFlags(g, cmd)
	if err := m.checkReport(r); err != nil {
		return err
	}
	_, r.command, _ = strings.Cut(cmd.CommandPath(), " ")
	r.sinks, g.report = m.sinks(r), r
	return nil
}

// checkPrintManifest rejects the flags of a report next to --print-manifest.
func (r *report) checkPrintManifest(fs *pflag.FlagSet) error {
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

// planned replaces the sinks of a run by those of a plan: the flags asked for a run, the configuration file for a plan.
func (r *report) planned(g *globals) {
	if r.events != nil || r.timeline != nil {
		r.sinks = planning{g: g}.sinks(r)
	}
}

// did records a change of this host.
func (r *report) did(a host.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change := ""
	switch {
	case a.Verb == host.Write && a.Created:
		change = "created"
	case a.Verb == host.Write:
		change = "changed"
	case (a.Verb == host.Remove || a.Verb == host.RemoveTree) && a.Path != "":
		change = "removed"
	default:
		return
	}
	r.files = append(r.files, ui.File{Path: a.Path, Change: change})
}

// close ends the report of a run that ended with err.
func (r *report) close(g *globals, err error) {
	if r.timeline != nil {
		if failed := r.writeTimeline(g); failed != nil {
			r.ui.Warnf("cannot write the timeline: %v", failed)
		}
	}
	if r.events != nil {
		r.events.End(r.summary(), g.named(err))
	}
}

func (r *report) summary() ui.Summary {
	s := ui.Summary{Files: r.files}
	if n := r.node; n != nil {
		s.Node, s.ControlPlane, s.Endpoint = n.Name, n.ControlPlane, endpointOf(n)
	}
	return s
}

// endpointOf is the host:port of the API server that a node uses.
func endpointOf(n *config.Node) string {
	switch {
	case n.Reset != nil: // not a node any more
		return ""
	case n.Join != nil:
		return strings.TrimPrefix(n.Join.Server, "https://")
	case n.ControlPlane || n.Cluster.ControlPlaneEndpoint != "":
		return n.Endpoint()
	}
	return ""
}

// writeTimeline writes the file atomically, and draws the bars.
func (r *report) writeTimeline(g *globals) error {
	path, err := filepath.Abs(r.timelineFile)
	if err != nil {
		return err
	}
	data, err := r.timeline.Trace()
	if err != nil {
		return err
	}
	if err := r.timeline.Bars(g.streams.err); err != nil {
		return err
	}
	_, err = host.New().WriteFile(path, data, 0o644)
	return err
}
