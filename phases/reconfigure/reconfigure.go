// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconfigure has the workflows of `reconfigure`, which gives a live control plane another configuration, on trial, and stores
// that in the cluster once it has worked, and of `reconfigure node`, which brings another node to the stored configuration in the
// same way. If anything fails before, the node goes back to its files from before (package trial).
package reconfigure

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// Run is one change of the configuration on this node. Its phases share the turn and the record, so none runs alone.
type Run struct {
	*reconfiguring.Change
	// Program is this program's path, for the units that put the node back.
	Program string

	// earlier is this node's last change, if it was interrupted while it was stored.
	earlier *trial.Record
	turn    node.Turn
	taken   bool // the turn
	record  *trial.Record
	// The changes on this node.
	certificates []certs.Spec
	components   []node.Replacement
	kubelet      []ownership.File
	// addons is set once the add-ons may have changed, stored once the cluster's configuration may have.
	addons, stored bool
}

// New returns a run that makes a change on this node.
func New(env *step.Env, change *reconfiguring.Change, program string) (*Run, error) {
	last, err := trial.Last(env)
	if err != nil {
		return nil, err
	}
	r := &Run{Change: change, Program: program}
	if last != nil && last.State == trial.Storing {
		r.earlier = last
	}
	return r, nil
}

// Interrupted returns the change of this node that was interrupted on trial; nil if there's none.
func Interrupted(env *step.Env) (*trial.Record, error) {
	last, err := trial.Last(env)
	if err != nil || last == nil || last.State != trial.OnTrial {
		return nil, err
	}
	return last, nil
}

// PutBack is the workflow that puts back an interrupted change. It needs no API: the change may have broken it. byWatch says that
// the unit that watches runs it.
func PutBack(interrupted *trial.Record, byWatch bool) []step.Phase {
	return []step.Phase{{Name: "put-back", Summary: "Put back the change that was interrupted", Run: func(ctx context.Context, env *step.Env) error {
		env.UI.Warnf("the change of %s UTC was interrupted on trial", interrupted.Began.Format(time.DateTime))
		turn, err := takeTurn(ctx, env, node.TakeTurnIfAnswered)
		if err != nil {
			return err
		}
		if err := turn.Finish(ctx, env, interrupted.PutBack(ctx, env, turn)); err != nil {
			return err
		}
		if err := trial.Unguard(ctx, env, byWatch); err != nil || turn.Held || !env.Config.ControlPlane {
			return err
		}
		if err := env.Cluster.Ready(ctx); err != nil { // it was away before, with the Lease
			return err
		}
		return finishEarlierTurn(ctx, env)
	}}}
}

// PutFilesBack is the workflow that only puts back the files of an interrupted change, before the kubelet starts.
func PutFilesBack(interrupted *trial.Record) []step.Phase {
	return []step.Phase{{Name: "put-files-back", Summary: "Put back the files of the change that was interrupted", Run: func(_ context.Context, env *step.Env) error {
		return interrupted.RestoreFiles(env)
	}}}
}

// Phases returns the workflow.
func (r *Run) Phases() []step.Phase {
	phase := func(name, summary string, run func(context.Context, *step.Env) error) step.Phase {
		return step.Phase{Name: name, Summary: summary, Run: r.orBack(run)}
	}
	return []step.Phase{
		phase("preflight", "Check that the change can succeed, and pull its images", r.preflight),
		phase("prepare", "Take this control plane's turn, and keep the files that change", r.prepare),
		phase("certificates", "Issue certificates with new names", r.issueCertificates),
		phase("control-plane", "Restart the components whose static Pods change, on trial", r.restartComponents),
		phase("kubelet-config", "Restart the kubelet with its new settings, on trial", r.restartKubelet),
		r.addonPhase(),
		phase("upload-config", "Store the configuration in the cluster", r.store),
		phase("finish", "Give the turn back, and show the next steps", r.finish),
	}
}

// orBack puts this node back if run fails on trial.
func (r *Run) orBack(run func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(ctx context.Context, env *step.Env) error {
		err := run(ctx, env)
		if err == nil || !r.taken {
			return err
		}
		r.taken = false
		if r.record == nil || r.stored {
			return r.turn.Finish(ctx, env, err)
		}
		return r.goBack(context.WithoutCancel(ctx), env, err) // the user who stops the run wants the previous state, too
	}
}

func (r *Run) goBack(ctx context.Context, env *step.Env, failed error) error {
	env.UI.Warnf("the change failed; putting this node back")
	if err := r.record.PutBack(ctx, env, r.turn); err != nil {
		failed = fault.WithRemedy(errors.WithMessagef(failed, "and putting this node back failed, too (%v)", err),
			"run the same command again, which tries again to put back the files in "+r.record.Dir()+"; `slipway diagnose` says what is wrong")
		return r.turn.Finish(ctx, env, failed)
	}
	failed = node.RunsAsBefore(failed)
	if err := trial.Unguard(ctx, env, false); err != nil {
		ui.WarnError(env.UI, err)
	}
	if r.addons {
		if err := r.putBackAddons(ctx, env); err != nil {
			failed = errors.WithMessagef(failed, "the add-ons may still have the change (%v)", err)
		}
	}
	return r.turn.Finish(ctx, env, failed)
}

func (r *Run) takeTurn(ctx context.Context, env *step.Env) (err error) {
	if r.taken {
		return nil
	}
	r.turn, err = takeTurn(ctx, env, node.TakeTurn)
	r.taken = err == nil
	return err
}

func takeTurn(ctx context.Context, env *step.Env, take func(context.Context, *step.Env, node.Purpose) (node.Turn, error)) (node.Turn, error) {
	if !env.Config.ControlPlane {
		return node.NoTurn(), nil
	}
	return take(ctx, env, node.ForConfiguration)
}

// addonPhase is the phase addon, without the Pod network, which has no configuration here.
func (r *Run) addonPhase() step.Phase {
	p := addon.Upgrade(func(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
		return r.orBack(func(ctx context.Context, env *step.Env) error {
			if err := r.unchanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeletConfigMap); err != nil {
				return err
			}
			r.addons = true
			return upgrade(ctx, env)
		})
	})
	p.Summary, p.SideBySide = "Change the cluster's DNS and service proxy", false
	p.Children = slices.DeleteFunc(p.Children, func(c step.Phase) bool { return c.Name == "network" })
	p.Children[0].Summary, p.Children[1].Summary = "Change CoreDNS", "Change kube-proxy"
	return p
}

// putBackAddons changes the add-ons the other way around.
func (r *Run) putBackAddons(ctx context.Context, env *step.Env) error {
	back, change := *env, *env.Config.Upgrade
	change.Before = env.Config
	back.Config = env.Config.Upgrade.Before.With(func(n *config.Node) { n.Upgrade = &change })
	for _, p := range addon.Upgrade(addon.Regardless).Children[:2] {
		if p.Skip != nil && p.Skip(&back) != "" {
			continue
		}
		if err := p.Run(ctx, &back); err != nil {
			return err
		}
	}
	return nil
}
