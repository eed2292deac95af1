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

// report is how a command that runs phases tells what it does, beyond what the
// peer's does: its flags, and what the run has to show for them in the end.
// docs/machine-output.md describes it.
type report struct {
	form         string // of the output: text, json, yaml
	timelineFile string
	diff         bool

	command  string
	ui       ui.UI
	events   *ui.Events   // nil without -o json
	timeline *ui.Timeline // nil without --timeline

	mu    sync.Mutex
	node  *config.Node
	files []ui.File
}

// reportFlags are those that a report adds to a command.
var reportFlags = []string{"output", "diff", "timeline"}

// reporting gives cmd, which runs phases, the flags of a report, and makes it.
func reporting(g *globals, cmd *cobra.Command) {
	r := &report{}
	r.bind(cmd.Flags())
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.check(cmd.Flags()); err != nil {
			return err
		}
		r.open(g, cmd)
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

// check refuses what does not go together, before anything is done.
func (r *report) check(fs *pflag.FlagSet) error {
	if r.diff {
		if err := fs.Set("dry-run", "true"); err != nil {
			return err
		}
	}
	dryRun, err := fs.GetBool("dry-run")
	printManifest := fs.Lookup("print-manifest") != nil && fs.Changed("print-manifest")
	switch {
	case err != nil:
		return err
	case printManifest && len(r.given(fs)) > 0:
		return errors.Errorf("--print-manifest prints objects and does nothing else: leave out %s", strings.Join(r.given(fs), ", "))
	case checkPlanForm(r.form) != nil:
		return checkPlanForm(r.form)
	case r.form == "yaml" && !dryRun:
		return errors.New("--output yaml prints a plan: add --dry-run, or use --output json for the events of a run")
	case r.timelineFile != "" && dryRun:
		return errors.New("--timeline cannot be given together with --dry-run: a dry run does nothing that takes time")
	}
	return nil
}

func (*report) given(fs *pflag.FlagSet) []string {
	var names []string
	for _, name := range reportFlags {
		if fs.Changed(name) {
			names = append(names, "--"+name)
		}
	}
	return names
}

// open begins the report of a command.
func (r *report) open(g *globals, cmd *cobra.Command) {
	_, r.command, _ = strings.Cut(cmd.CommandPath(), " ")
	dryRun, _ := cmd.Flags().GetBool("dry-run")
	r.ui = plainUI(g)
	if r.form == "json" && !dryRun {
		r.events = ui.NewEvents(g.program, thisBuild().version, r.command, g.streams.out)
		r.ui = r.events
	}
	if r.timelineFile != "" {
		r.timeline = ui.NewTimeline(r.ui)
		r.ui = r.timeline
	}
	g.report = r
}

// planned turns to the report of a plan: a configuration file can ask for a
// dry run, too.
func (r *report) planned(g *globals) {
	if r.events != nil || r.timeline != nil {
		r.events, r.timeline, r.ui = nil, nil, plainUI(g)
	}
}

// did notes a change of this host.
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
			r.ui.Warnf("no timeline was written: %v", failed)
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

// endpointOf is the host:port at which a node finds the cluster's API.
func endpointOf(n *config.Node) string {
	switch {
	case n.Reset != nil: // it is no node any more
		return ""
	case n.Join != nil:
		return strings.TrimPrefix(n.Join.Server, "https://")
	case n.ControlPlane || n.Cluster.ControlPlaneEndpoint != "":
		return n.Endpoint()
	}
	return ""
}

// writeTimeline writes the file whole or not at all, and draws the bars.
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
