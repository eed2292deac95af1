// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Report is the output of a command that runs phases, in addition to kubeadm's, and its flags; see docs/machine-output.md.
type Report struct {
	Form         string // of the output: text, json, yaml
	TimelineFile string
	Diff         bool

	Command string
	Sinks

	mu    sync.Mutex
	Node  *config.Node
	files []ui.File
}

type Sinks struct {
	UI       ui.UI
	Events   *ui.Events   // nil without -o json
	Timeline *ui.Timeline // nil without --timeline
}

func (r *Report) Bind(fs *pflag.FlagSet) {
	fs.StringVarP(&r.Form, "output", "o", "text", "output `format`: text, json (a plan with --dry-run, events otherwise) or yaml (plans only)")
	Offer(fs, "output", "text", "json", "yaml")
	fs.StringVar(&r.TimelineFile, "timeline", "", "write the times of all phases to `file`, as Chrome trace events")
	fs.BoolVar(&r.Diff, "diff", false, "show how files and objects would change; implies --dry-run")
}

func (r *Report) Did(a host.Action) {
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

func (r *Report) Close(g *Globals, err error) {
	if r.Timeline != nil {
		if failed := r.writeTimeline(g); failed != nil {
			r.UI.Warnf("cannot write the timeline: %v", failed)
		}
	}
	if r.Events != nil {
		r.Events.End(r.summary(), g.named(err))
	}
}

func (r *Report) summary() ui.Summary {
	s := ui.Summary{Files: r.files}
	if n := r.Node; n != nil {
		s.Node, s.ControlPlane, s.Endpoint = n.Name, n.ControlPlane, endpointOf(n)
	}
	return s
}

// endpointOf is the host:port of the API server a node uses.
func endpointOf(n *config.Node) string {
	switch {
	case n.Reset != nil: // not a node anymore
		return ""
	case n.Join != nil:
		return strings.TrimPrefix(n.Join.Server, "https://")
	case n.ControlPlane || n.Cluster.ControlPlaneEndpoint != "":
		return n.Endpoint()
	}
	return ""
}

// writeTimeline writes the file atomically, and then draws the bars, which standard error may no longer take.
func (r *Report) writeTimeline(g *Globals) error {
	path, err := filepath.Abs(r.TimelineFile)
	if err != nil {
		return err
	}
	data, err := r.Timeline.Trace()
	if err != nil {
		return err
	}
	if _, err := linux.New().WriteFile(path, data, 0o644); err != nil {
		return err
	}
	return r.Timeline.Bars(g.Streams.Err)
}
