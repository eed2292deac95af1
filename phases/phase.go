// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phases holds the steps of every workflow, and the workflows
// themselves as slices of steps (init.go).
package phases

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// Env is all that a phase has: what shall be, and what it may ask and do.
// Phases hand over to each other through what they leave on the host and in
// the API, so that any of them runs alone.
type Env struct {
	Config  *config.Node
	Host    host.Host
	Cluster cluster.Cluster
	UI      ui.UI
}

// Phase is one step of a workflow. It compares what should be with what is and
// acts on the difference only, so that it can run again after any interruption.
type Phase struct {
	// Name is the word for --skip-phases and for the subcommand.
	Name    string
	Summary string
	// Flags are the names of the flags that the phase's own command takes.
	Flags []string
	// Run does the work. A phase with Children has none.
	Run func(ctx context.Context, env *Env) error
	// Children run in order. A parent that has Flags can be run as a whole
	// by its subcommand "all".
	Children []Phase
	// SideBySide lets the children run at the same time, each after those of
	// its siblings that its After names.
	SideBySide bool
	After      []string
	// Manifest returns the objects that an add-on phase installs, for
	// --print-manifest.
	Manifest func(env *Env) ([]manifests.Object, error)
	// Skip returns why the configuration makes this phase unnecessary, or
	// nothing.
	Skip func(n *config.Node) (reason string)
}

// Options are what a run of a workflow may be told.
type Options struct {
	// Skip names the phases to leave out: NAME or NAME/CHILD.
	Skip []string
	// Serial runs everything in order, nothing side by side.
	Serial bool
}

// Run executes a workflow in order. A name to skip that no phase has is an
// error before anything runs.
func Run(ctx context.Context, env *Env, workflow []Phase, opts Options) error {
	if err := knowAll(workflow, opts.Skip); err != nil {
		return err
	}
	r := runner{env, opts}
	return r.inOrder(ctx, workflow, "")
}

type runner struct {
	env  *Env
	opts Options
}

func (r runner) inOrder(ctx context.Context, siblings []Phase, parent string) error {
	for _, p := range siblings {
		if err := r.one(ctx, p, parent+p.Name); err != nil {
			return err
		}
	}
	return nil
}

func (r runner) sideBySide(ctx context.Context, siblings []Phase, parent string) error {
	done := map[string]chan struct{}{}
	for _, p := range siblings {
		done[p.Name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range siblings {
		group.Go(func() error {
			for _, before := range p.After {
				select {
				case <-done[before]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := r.one(ctx, p, parent+p.Name); err != nil {
				return err
			}
			close(done[p.Name])
			return nil
		})
	}
	return group.Wait()
}

func (r runner) one(ctx context.Context, p Phase, path string) error {
	if reason := r.skipReason(p, path); reason != "" {
		r.env.UI.Skip(path, reason)
		return nil
	}
	end := r.env.UI.Start(path)
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case p.Run != nil:
		err = p.Run(ctx, r.env)
	case p.SideBySide && !r.opts.Serial:
		err = r.sideBySide(ctx, p.Children, path+"/")
	default:
		err = r.inOrder(ctx, p.Children, path+"/")
	}
	end(err)
	return inPhase(err, path)
}

func (r runner) skipReason(p Phase, path string) string {
	if slices.Contains(r.opts.Skip, path) {
		return "--skip-phases"
	}
	if p.Skip != nil {
		return p.Skip(r.env.Config)
	}
	return ""
}

// phaseError adds, once and innermost, the phase that an error came from.
type phaseError struct {
	path string
	err  error
}

func (e *phaseError) Error() string { return "phase " + e.path + ": " + e.err.Error() }
func (e *phaseError) Unwrap() error { return e.err }

func inPhase(err error, path string) error {
	var inner *phaseError
	if err == nil || errors.As(err, &inner) {
		return err
	}
	return &phaseError{path, err}
}

func knowAll(workflow []Phase, names []string) error {
	known := Paths(workflow)
	var unknown []string
	for _, name := range names {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return errors.Errorf("skip-phases: no phase is called %s; the phases are %s",
			strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	return nil
}

// Paths lists the names that --skip-phases takes, children as PARENT/CHILD.
func Paths(workflow []Phase) []string {
	var paths []string
	for _, p := range workflow {
		paths = append(paths, p.Name)
		for _, child := range Paths(p.Children) {
			paths = append(paths, p.Name+"/"+child)
		}
	}
	return paths
}

// Print returns what an add-on phase installs as YAML documents.
func (p Phase) Print(env *Env) ([]byte, error) {
	objs, err := p.Manifest(env)
	if err != nil {
		return nil, err
	}
	return manifests.Print(objs)
}
