// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phases holds the steps of every workflow, and the workflows
// themselves as slices of steps (init.go).
package phases

import (
	"context"
	"crypto"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
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
	Etcd    etcd.Etcd
	UI      ui.UI
	// Again says that a whole workflow runs on a host that was a node before, or
	// half of one (HasBegun): what an operator has edited there and in the cluster
	// stays (keep.go). A phase that is run by its own command writes what its
	// configuration says.
	Again bool
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
	// RunWithKey, in place of Run, is for a phase that may need a new private
	// key, which takes a tenth of a second or more. NeedsKey tells, before
	// anything runs, whether it does: then a key is generated while other phases
	// run. Whoever gets nil and needs a key after all generates it.
	RunWithKey func(ctx context.Context, env *Env, key crypto.Signer) error
	NeedsKey   func(env *Env) bool
	// Children make up a phase. A parent that has Flags can be run as a whole
	// by its subcommand "all".
	Children []Phase
	// Whole says that the children have no commands of their own.
	Whole bool
	// SideBySide says that the children do not wait for each other.
	SideBySide bool
	// Needs names what must have ended before this phase begins: PHASE or
	// PHASE/CHILD, wherever that stands. A phase that names nothing waits for
	// the one before it, unless its parent says SideBySide.
	Needs []string
	// Manifest returns the objects that an add-on phase installs, for
	// --print-manifest.
	Manifest func(env *Env) ([]manifests.Object, error)
	// Skip returns why the configuration makes this phase unnecessary, or
	// nothing.
	Skip func(n *config.Node) (reason string)
}

// phaseError adds, once and innermost, the phase that an error came from.
type phaseError struct {
	path string
	err  error
}

func (e *phaseError) Error() string { return "phase " + e.path + ": " + e.err.Error() }
func (e *phaseError) Unwrap() error { return e.err }

// needing returns p with the names of what it waits for.
func (p Phase) needing(paths ...string) Phase {
	p.Needs = paths
	return p
}

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
