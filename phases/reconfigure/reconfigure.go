// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconfigure has the workflows of `reconfigure` and `reconfigure node`. The first gives a live control plane another
// configuration, on trial, and stores it in the cluster once it has worked. The second brings another node to the stored
// configuration in the same way (docs/design/reconfigure-nodes.md). If a phase fails before that, rollBackOnFailure puts the
// node's former files back (package trial). Start at New, or at NewRevert for --revert: both return a Run, whose Phases,
// NodePhases and RevertPhases are the workflows.
//
//   - reconfigure.go: Run, its phases, and rollBackOnFailure, which puts a failed phase's change back
//   - this_node.go, node.go: the phases on this control plane, and on other nodes
//   - checks.go, pending.go, hashes.go: findings before a change, and files changed since they were read
//   - etcd_quota.go, kubelet_overrides.go, kubelet_certificates.go: findings about single settings
//   - addons.go, coredns.go: CoreDNS and kube-proxy on trial, and CoreDNS's way back
//   - endpoint.go, endpoint_checks.go, names.go, cluster_info.go: another controlPlaneEndpoint
//   - store.go: the ConfigMaps, compared with the texts read before
//   - confirm.go: --try and --confirm
//   - roll_back.go: puts back a change of this run or an earlier one, or finishes storing it
//   - revert.go, revert_limits.go: choose the files for --revert, which this_node.go restores, and say where it is impossible
package reconfigure

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// Run is one change of the configuration on this node. Its phases share the turn and the record, so none runs alone.
type Run struct {
	*reconfiguring.Change
	// Program is this program's path, for the units to put the node back.
	Program string
	// Try is how long the change waits for its confirmation; zero for not at all. Wait calls a waiting function; a plan doesn't.
	Try  time.Duration
	Wait func(func() error) error
	// Reverts is the change that this one takes back; nil for one with a configuration of its own.
	Reverts *trial.Record

	serverAlone bool // nothing but the API server changes on this node
	lease       node.Lease
	leaseHeld   bool // the turn
	record      *trial.Record
	// The changes on this node.
	certificates []certs.Spec
	lost         []string // names the API server's certificate loses
	kubeconfigs  []ownership.File
	components   []node.Replacement
	kubelet      []ownership.File
	profiles     []ownership.File // files of the API server
	// others are a reverted change's other files, such as certificates, as they were.
	others []trial.File
	// seen has the hashes of files as this run has first seen them, by path.
	seen map[string]string
	// stored is set once the cluster's configuration may have changed.
	stored bool
}

// New returns a run to make a change on this control plane.
func New(change *reconfiguring.Change, program string) *Run {
	return &Run{Change: change, Program: program}
}

// Phases returns the workflow.
func (r *Run) Phases() []step.Phase {
	phase := func(name, summary string, run func(context.Context, *step.Env) error) step.Phase {
		return step.Phase{Name: name, Summary: summary, Run: r.rollBackOnFailure(run)}
	}
	return r.confirming([]step.Phase{
		phase("preflight", "Check that the change can succeed, and pull its images", r.preflight),
		phase("prepare", "Acquire the Lease, and back up the files that change", r.prepare),
		phase("certificates", "Issue certificates with new names", r.issueCertificates),
		phase("kubeconfig", "Point this node's clients at the API's new endpoint, if it changes", r.redirectClients),
		phase("control-plane", "Restart the components whose static Pods change, on trial", r.restartComponents),
		phase("kubelet-config", "Restart the kubelet with its new settings, on trial", r.restartKubelet),
		r.addonPhase(),
		phase("upload-config", "Store the configuration in the cluster", r.store),
		phase("finish", "Release the Lease, and show the next steps", r.finish),
		kubelet.ServingCertificate(),
	}, "upload-config")
}

// APIServerPhases returns the workflow that gives only the API server other flags, and stores them if they aren't stored yet. Other
// changes that this node hasn't got yet wait for `reconfigure node`. The caller tells what to do on the other control planes.
func (r *Run) APIServerPhases() []step.Phase {
	r.serverAlone = true
	workflow := r.NodePhases()
	if len(r.Fields) > 0 {
		workflow = r.Phases()
	}
	workflow = slices.DeleteFunc(workflow, func(p step.Phase) bool {
		return slices.Contains([]string{"certificates", "kubeconfig", "kubelet-config", "addon"}, p.Name)
	})
	i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == "finish" })
	workflow[i].Summary, workflow[i].Run = "Release the Lease", r.rollBackOnFailure(r.end)
	return workflow
}

// confirming adds the wait for a confirmation, if there's one, before a phase.
func (r *Run) confirming(phases []step.Phase, before string) []step.Phase {
	if r.Try == 0 {
		return phases
	}
	i := slices.IndexFunc(phases, func(p step.Phase) bool { return p.Name == before })
	return slices.Insert(phases, i, step.Phase{Name: "confirmation", Summary: "Wait for `slipway reconfigure --confirm`", Run: r.rollBackOnFailure(r.awaitConfirmation)})
}

// rollBackOnFailure puts this node back if run fails on trial.
func (r *Run) rollBackOnFailure(run func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(ctx context.Context, env *step.Env) error {
		err := run(ctx, env)
		if err == nil || !r.leaseHeld {
			return err
		}
		if r.record != nil && r.record.AwaitsConfirmation() && errors.Is(context.Cause(ctx), step.ErrHangup) { // nobody wants the previous state
			return fault.WithRemedy(errors.WithMessage(err, "slipway-watch.service continues, and waits for the confirmation if there is none yet"),
				"run `slipway reconfigure --confirm`, or --revert; `journalctl -u slipway-watch` has the outcome")
		}
		r.leaseHeld = false
		if r.record == nil || r.stored {
			return r.lease.Release(ctx, env, err)
		}
		return r.handleTrialFailure(context.WithoutCancel(ctx), env, err) // the user who stops the run wants the previous state, too
	}
}

func (r *Run) handleTrialFailure(ctx context.Context, env *step.Env, failed error) error {
	env.UI.Warnf("the change failed; putting this node back")
	r.record.Cause = failed.Error()
	if err := rollBack(ctx, env, r.lease, r.record); err != nil {
		remedy := "run the same command again, which tries again to put back the files in " + r.record.Dir() + "; `slipway diagnose` says what is wrong"
		if errors.As(err, new(*node.QuorumError)) {
			remedy = fault.Remedy(err)
		}
		failed = fault.WithRemedy(errors.WithMessagef(failed, "and putting this node back failed, too (%v)", err), remedy)
		return r.lease.Release(ctx, env, failed)
	}
	failed = r.lease.Release(ctx, env, node.NewRolledBackError(failed))
	if err := trial.RemoveUnits(ctx, env, false); err != nil {
		ui.WarnError(env.UI, err)
	}
	return failed
}

func (r *Run) acquireLease(ctx context.Context, env *step.Env) (err error) {
	if r.leaseHeld {
		return nil
	}
	r.lease, err = acquireLease(ctx, env, node.AcquireLease)
	r.leaseHeld = err == nil
	return err
}

func acquireLease(ctx context.Context, env *step.Env, take func(context.Context, *step.Env, node.Purpose) (node.Lease, error)) (node.Lease, error) {
	if !env.Config.ControlPlane {
		return node.NoLease(), nil
	}
	return take(ctx, env, node.ForConfiguration)
}
