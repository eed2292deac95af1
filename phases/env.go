// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phases holds the workflows (init.go, join.go, reset.go, renew.go) and their phases, one file each.
package phases

import (
	"context"
	"crypto"
	"runtime"

	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/internal/background"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/workflow"
)

// Env is all that a phase has: the desired state, and what it may ask and do. Phases hand over to each other through
// what they leave on the host and in the API, so that any of them runs alone.
type Env struct {
	Config  *config.Node
	Host    host.Host
	Cluster cluster.Cluster
	Etcd    etcd.Etcd
	UI      ui.UI
	// Again says that a whole workflow runs on a host that was a node before, or half of one (HasBegun): what an
	// operator has edited there and in the cluster stays (internal/ownership). A phase that is run by its own command writes
	// what its configuration says.
	Again bool
}

// Start implements workflow.Environment.
func (e *Env) Start(phase string) (in *Env, end func(error)) {
	copied := *e
	copied.UI, end = e.UI.Start(phase)
	return &copied, end
}

// Skipped implements workflow.Environment.
func (e *Env) Skipped(phase, reason string) { e.UI.Skip(phase, reason) }

// keeper writes what is Slipway's, and keeps what an operator has edited.
func (e *Env) keeper() ownership.Keeper {
	return ownership.Keeper{Host: e.Host, Cluster: e.Cluster, UI: e.UI, Config: e.Config, Again: e.Again, Unfinished: thisnode.Unfinished(e.Host, e.Config)}
}

// pki is the certificates, keys and kubeconfig files of this host.
func (e *Env) pki() pki.Store { return pki.Store{Host: e.Host, Config: e.Config, UI: e.UI} }

// accounts are those of a rootless control plane on this host.
func (e *Env) accounts() accounts.Rootless {
	return accounts.Rootless{Host: e.Host, Config: e.Config, UI: e.UI}
}

// tokens are the cluster's bootstrap tokens.
func (e *Env) tokens() tokens.Store {
	return tokens.Store{Cluster: e.Cluster, UI: e.UI, Now: e.Host.Now}
}

// kubeletTarget is what to look at on this node without the control plane, whose files may still be written.
func (e *Env) kubeletTarget() diagnose.Target {
	n := e.Config
	return diagnose.Target{Socket: n.CRISocket, Kubelet: n.Paths.Kubelet, Kubeconfigs: n.Paths.Kubeconfigs}
}

// nodeTarget is the whole node.
func (e *Env) nodeTarget() diagnose.Target {
	t := e.kubeletTarget()
	if e.Config.ControlPlane {
		t.Manifests = e.Config.Paths.Manifests
	}
	return t
}

// Phase is a step of one of the workflows.
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
		Skip: opts.Skip, Serial: opts.Serial, NewKey: newKeyInBackground, Keys: processors,
	})
}

// newKeyInBackground generates a key with a low priority: what earlier keys have made possible, such as the start of
// the kubelet and of containers, goes first.
func newKeyInBackground(env *Env) (key crypto.Signer, err error) {
	background.Do(func() { key, err = env.pki().NewKey() })
	return key, err
}

// patches reads the user's directory of patches, if there is one.
func (e *Env) patches() (config.PatchSet, error) {
	return config.ReadPatches(e.Host, e.Config.PatchesDir)
}
