// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// minRoom is how much a database has to be able to grow, in bytes, or a tenth of its size: the trial writes, and so do the clients.
const minRoom = 16 << 20

func (r *Run) quotaQuestion(env *step.Env) preflight.Check {
	return question(env, fault.EtcdQuota, "etcd's databases have room below its next quota", r.checkQuota)
}

// checkQuota refuses to lower etcd's quota below the size of a database: the first write would raise an alarm that makes all members
// refuse writes, and the previous quota doesn't end that.
func (r *Run) checkQuota(ctx context.Context, env *step.Env) []fault.Finding {
	before, wanted, err := r.etcds(env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	next := manifests.EtcdQuota(wanted)
	member, _ := manifests.ReadEtcd(wanted)
	if wanted == nil || member.ConfigFile != "" || next >= manifests.EtcdQuota(before) { // beside a file, etcd ignores the flag
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return []fault.Finding{fault.NewFinding("", fault.Unasked, fault.Remedy(err), "whether etcd's databases fit into the quota of %d bytes: %v", next, err)}
	}
	largest := etcd.Health{}
	for _, m := range all {
		if m.Status.Size > largest.Status.Size {
			largest = m
		}
	}
	size := largest.Status.Size
	if size == 0 {
		return []fault.Finding{fault.NewFinding("", fault.Unasked, "", "whether etcd's databases fit into the quota of %d bytes: no member says its size", next)}
	}
	least := size + max(size/10, minRoom)
	if next >= least {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error,
		fmt.Sprintf("set at least %d, in bytes; `slipway etcd defrag` frees unused space", least),
		"with --quota-backend-bytes=%d, etcd would refuse all writes: the database of member %s has %d bytes, and needs room to grow",
		next, largest.Label(), size)}
}

// etcds are this node's etcd now and after this run; nil for one that this run leaves alone.
func (r *Run) etcds(env *step.Env) (before, wanted *corev1.Pod, err error) {
	now, next, err := r.etcdManifests(env)
	if err != nil || next == nil {
		return nil, nil, err
	}
	if now != nil && yaml.Unmarshal(now, &before) != nil {
		before = nil // StaticPodEdits shows why
	}
	return before, wanted, errors.WithStack(yaml.Unmarshal(next, &wanted))
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
