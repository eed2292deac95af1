// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// protectionQuestion finds flags protecting data or access that came after the backup, so the rollback would drop them: data
// encrypted since can't be read without them. It can be ignored, because such a flag may be why the new version doesn't run.
func (r *Rollback) protectionQuestion(env *step.Env) preflight.Check {
	return preflight.Check{Name: node.ProtectionCheck, Asks: "the rollback keeps what protects data and access", Run: func(context.Context, preflight.View) []fault.Finding {
		var found []fault.Finding
		for _, component := range slices.Sorted(maps.Keys(r.before)) {
			lost, err := r.lostFlags(env, component)
			switch {
			case err != nil:
				found = append(found, fault.Of(err))
			case len(lost) > 0:
				found = append(found, fault.NewFinding(node.ProtectionCheck, fault.Error,
					"add it to "+r.Backup.Manifests[component]+", which the rollback puts back; to go back without it, use --ignore-preflight-errors="+node.ProtectionCheck,
					"the rollback would drop protection of data or access from the static Pod of %s: %s", component, strings.Join(lost, ", ")))
			}
		}
		return found
	}}
}

// lostFlags are in a component's static Pod, but not in the backup's. An unreadable Pod has none: it's why the user goes back.
func (r *Rollback) lostFlags(env *step.Env, component string) (lost []string, err error) {
	now, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, component))
	if err != nil || now == nil || r.keepsEtcd(env, component) {
		return nil, err
	}
	there, err := node.DecodePod(now)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	before, err := node.DecodePod(r.before[component])
	if err != nil {
		return nil, err
	}
	for _, f := range node.PodFlags(there) {
		if f.Begins(slices.Values(node.ProtectiveFlags)) != "" && !f.StaysIn(env, there, before) {
			lost = append(lost, strings.Join(f.Words, " "))
		}
	}
	return lost, nil
}
