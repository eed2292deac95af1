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

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
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
	// Skip returns why the configuration makes this phase unnecessary, or
	// nothing.
	Skip func(n *config.Node) (reason string)
}

// Run executes a workflow in order, leaving out what skip names: NAME or
// NAME/CHILD. A name that no phase has is an error before anything runs.
func Run(ctx context.Context, env *Env, workflow []Phase, skip []string) error {
	if err := knowAll(workflow, skip); err != nil {
		return err
	}
	return run(ctx, env, workflow, "", skip)
}

func run(ctx context.Context, env *Env, workflow []Phase, parent string, skip []string) error {
	for _, p := range workflow {
		path := parent + p.Name
		if reason := p.skipReason(env.Config, path, skip); reason != "" {
			env.UI.Skip(path, reason)
			continue
		}
		end := env.UI.Start(path)
		err := ctx.Err()
		switch {
		case err != nil:
		case p.Run != nil:
			err = p.Run(ctx, env)
		default:
			err = run(ctx, env, p.Children, path+"/", skip)
		}
		end(err)
		if err != nil {
			return inPhase(err, path)
		}
	}
	return nil
}

func (p Phase) skipReason(n *config.Node, path string, skip []string) string {
	if slices.Contains(skip, path) {
		return "--skip-phases"
	}
	if p.Skip != nil {
		return p.Skip(n)
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
	if errors.As(err, &inner) {
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
