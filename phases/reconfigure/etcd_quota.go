// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

func (r *Run) quotaQuestion(env *step.Env) preflight.Check {
	return question(env, fault.EtcdQuota, "etcd's databases have room below its next quota", r.checkQuota)
}

// checkQuota refuses to lower etcd's quota below the size of a database.
func (r *Run) checkQuota(ctx context.Context, env *step.Env) []fault.Finding {
	before, wanted, err := r.etcds(env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	if wanted == nil {
		return nil
	}
	return node.CheckEtcdQuota(ctx, env, before, wanted, "")
}

// etcds are this node's etcd now and after this run; nil if this run leaves it alone.
func (r *Run) etcds(env *step.Env) (before, wanted *corev1.Pod, err error) {
	now, next, err := r.etcdManifests(env)
	if err != nil || next == nil {
		return nil, nil, err
	}
	if now != nil {
		before, _ = manifests.DecodePod(now) // StaticPodEdits shows why not
	}
	wanted, err = manifests.DecodePod(next)
	return before, wanted, err
}

func (r *Run) etcdManifests(env *step.Env) (now, next []byte, err error) {
	if r.Reverts == nil {
		components, err := node.Replacements(env)
		if i := slices.IndexFunc(components, func(c node.Replacement) bool { return c.Name == manifests.EtcdName }); i >= 0 {
			return components[i].Before, components[i].Wanted, err
		}
		return nil, nil, err
	}
	for _, f := range r.Reverts.Files {
		if trial.ComponentAt(env, f.Path) != manifests.EtcdName {
			continue
		}
		if now, err = host.ReadIfExists(env.Host, f.Path); err != nil {
			return nil, nil, err
		}
		next, err = r.Reverts.OriginalContent(env, f)
	}
	return now, next, err
}
