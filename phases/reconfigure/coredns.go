// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

const coreDNSCheck = "NewerCoreDNS"

func (r *Run) coreDNSQuestion(env *step.Env) preflight.Check {
	return question(env, coreDNSCheck, "CoreDNS gets its next image", r.keptCoreDNS)
}

// keptCoreDNS finds that the change would leave CoreDNS as it is.
func (r *Run) keptCoreDNS(ctx context.Context, env *step.Env) []fault.Finding {
	former, err := r.formerCoreDNS(ctx, env)
	if err == nil && former == nil {
		err = addon.RefuseKeptCoreDNS(ctx, env)
	}
	if err == nil {
		return nil
	}
	return []fault.Finding{fault.Of(err)}
}

// formerCoreDNS is the change back to CoreDNS as it was before the change that this run takes back; nil if somebody else has changed
// CoreDNS since, or if nobody knows.
func (r *Run) formerCoreDNS(ctx context.Context, env *step.Env) (*addon.CoreDNSChange, error) {
	if r.Reverts == nil || r.Reverts.CoreDNS == nil {
		return nil, nil
	}
	back := r.Reverts.CoreDNS.Back()
	fits, err := back.Fits(ctx, env)
	if err != nil || !fits {
		return nil, err
	}
	return &back, nil
}

// coreDNSChange notes what becomes of CoreDNS, and returns how: upgrade, or CoreDNS as it was before the change that this run takes back.
func (r *Run) coreDNSChange(ctx context.Context, env *step.Env, upgrade func(context.Context, *step.Env) error) (func(context.Context, *step.Env) error, error) {
	former, err := r.formerCoreDNS(ctx, env)
	if former != nil {
		r.record.CoreDNS = former
		return former.Make, nil
	}
	if err == nil {
		r.record.CoreDNS, err = addon.NextCoreDNS(ctx, env)
	}
	return upgrade, err
}

// wayBack makes an add-on's phase put back what a change has made of the add-on, if it concerned that.
func wayBack(record *trial.Record) func(string, func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
		if name == manifests.KubeProxyName || record.CoreDNS == nil { // earlier releases didn't keep CoreDNS
			return addon.WhenChanged(name, upgrade)
		}
		return addon.WhenChanged(name, func(ctx context.Context, env *step.Env) error {
			return rollBackCoreDNS(ctx, env, record.CoreDNS.Back())
		})
	}
}

// rollBackCoreDNS leaves CoreDNS alone if somebody else has changed it meanwhile, and says so.
func rollBackCoreDNS(ctx context.Context, env *step.Env, back addon.CoreDNSChange) error {
	fits, err := back.Fits(ctx, env)
	switch {
	case err != nil:
		return err
	case fits:
		return back.Make(ctx, env)
	}
	env.UI.Warn("keeping Deployment and ConfigMap kube-system/"+manifests.CoreDNSName+", which somebody else has changed meanwhile; before the change, the image was "+back.After.Image,
		"compare them with the change: `kubectl -n kube-system get deployment,configmap "+manifests.CoreDNSName+" -o yaml`")
	return nil
}
