// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package step has the parts of every phase: Env (the desired state, the host, the cluster, etcd, the UI, and how far earlier
// runs got), Phase, and Run. All workflows import it, and it imports none of them. docs/design/ensure.md says what each phase
// does, docs/design/waiting.md how it waits.
package step

import (
	"context"
	"crypto"
	"runtime"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/internal/background"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/workflow"
)

// ErrHangup is the cause of a run's end if its session, such as SSH, is gone (SIGHUP).
var ErrHangup = errors.New("hangup signal received: the session is gone")

// Earlier says how far earlier runs got. Only DetectEarlierRun decides it, before anything changes; the command of a single phase,
// which writes its configuration, has no Rerun.
type Earlier struct {
	// Rerun says that a whole workflow runs on a host that was already a node, or half a node (HasBegun): an operator's edits on
	// the host and in the cluster stay (internal/ownership).
	Rerun bool
	// Unfinished says that no earlier init or join has finished. Until then nobody runs anything on the node, so Slipway's
	// unedited files are still its own. It's false unless that was seen.
	Unfinished bool
	// First says that a whole workflow runs on a host where none has finished.
	First bool
}

// Env is everything a phase has: the desired state, and the means to ask and act. Phases hand over through the host and the API,
// so any of them runs alone.
type Env struct {
	// Config is the desired state of this node. It's nil where only a host is known, as in host prepare: then Machine has the
	// host's. Exactly one of the two is set.
	Config  *config.Node
	Machine *config.Machine

	Host    host.Host
	Cluster cluster.Cluster
	Etcd    etcd.Etcd
	UI      ui.UI
	Earlier
	// SpareKey is a new private key for a phase with NeedsSpare; nil if none was generated ahead.
	SpareKey crypto.Signer
}

// ForMachine is the environment of phases that know only a host.
func (e *Env) ForMachine(m *config.Machine) *Env {
	there := *e
	there.Config, there.Machine = nil, m
	return &there
}

// ForNode is the environment of a node's phases.
func (e *Env) ForNode(n *config.Node) *Env {
	there := *e
	there.Config, there.Machine = n, nil
	return &there
}

// Settings are the host's, whether it's a node or not.
func (e *Env) Settings() *config.Machine {
	if e.Config != nil {
		return &e.Config.Machine
	}
	return e.Machine
}

// Start implements workflow.Environment.
func (e *Env) Start(phase string) (in *Env, end func(error)) {
	copied := *e
	copied.UI, end = e.UI.Start(phase)
	return &copied, end
}

// Skipped implements workflow.Environment.
func (e *Env) Skipped(phase, reason string) { e.UI.Skip(phase, reason) }

// Keeper writes Slipway's files and objects, and keeps operators' edits.
func (e *Env) Keeper() ownership.Keeper {
	return ownership.Keeper{Host: e.Host, Cluster: e.Cluster, UI: e.UI, Config: e.Config, Rerun: e.Rerun, Unfinished: e.Unfinished}
}

// PKI holds this host's certificates, keys and kubeconfig files.
func (e *Env) PKI() pki.Store {
	return pki.Store{Host: e.Host, Config: e.Config, UI: e.UI, Unfinished: e.Unfinished}
}

// Accounts holds the accounts of a rootless control plane on this host.
func (e *Env) Accounts() accounts.Rootless {
	return accounts.Rootless{Host: e.Host, Config: e.Config, UI: e.UI}
}

// Tokens holds the cluster's bootstrap tokens.
func (e *Env) Tokens() tokens.Store {
	return tokens.Store{Cluster: e.Cluster, UI: e.UI, Now: e.Host.Now}
}

// KubeletTarget is the part of this node to diagnose without the control plane, whose files may still be written.
func (e *Env) KubeletTarget() diagnose.Target {
	m := e.Settings()
	return diagnose.Target{Socket: m.CRISocket, Kubelet: m.Paths.Kubelet, Kubeconfigs: m.Paths.Kubeconfigs}
}

// NodeTarget is the whole node.
func (e *Env) NodeTarget() diagnose.Target {
	t := e.KubeletTarget()
	if e.Config.ControlPlane {
		t.Manifests = e.Config.Paths.Manifests
	}
	return t
}

// Guard waits with diagnose.Guard. limit is a field of Settings().Timeouts, or a fixed time.
func (e *Env) Guard(ctx context.Context, limit *time.Duration, t diagnose.Target, failure string, wait func(context.Context) error) error {
	w := diagnose.Wait{Limit: *limit, Field: e.Settings().Timeouts.Field(limit), Failure: failure, Say: e.UI.Printf}
	return diagnose.Guard(ctx, e.Host, w, t, wait)
}

// Phase is a step in a workflow.
type Phase = workflow.Phase[*Env]

// Options say how to run a workflow.
type Options struct {
	// Skip names the phases to leave out: NAME or PARENT/CHILD.
	Skip []string
	// Serial runs one phase after another, in the order of the workflow.
	Serial bool
}

// Run executes a workflow. Private keys are generated in the background, as many at a time as there are processors.
func Run(ctx context.Context, env *Env, phases []Phase, opts Options) error {
	processors := runtime.GOMAXPROCS(0)
	if !opts.Serial {
		defer background.Reserve(processors)()
	}
	return workflow.Run(ctx, env, phases, workflow.Options[*Env]{
		Skip: opts.Skip, Serial: opts.Serial, NewSpare: newSpareKey, AtOnce: processors,
	})
}

// newSpareKey generates a key with low priority: anything earlier keys have made possible, such as the start of the kubelet and
// of containers, goes first.
func newSpareKey(env *Env) (put func(*Env) *Env, err error) {
	var key crypto.Signer
	background.Do(func() { key, err = env.PKI().NewKey() })
	return func(phase *Env) *Env {
		keyed := *phase
		keyed.SpareKey = key
		return &keyed
	}, err
}

// Patches reads the user's directory of patches, if any.
func (e *Env) Patches() (config.PatchSet, error) {
	set, err := config.ReadPatches(e.Host, e.Config.PatchesDir)
	if errors.As(err, new(config.Faults)) {
		err = errors.WithMessagef(err, "the patches in %s", e.Config.PatchesDir)
	}
	return set, err
}
