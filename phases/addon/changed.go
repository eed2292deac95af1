// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WhenChanged runs upgrade only if a change of the configuration concerns the add-on.
func WhenChanged(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(ctx context.Context, env *step.Env) error {
		changed, err := Changed(env, name)
		if err != nil || !changed {
			return err
		}
		return upgrade(ctx, env)
	}
}

// Changed reports whether a change of the configuration concerns CoreDNS or kube-proxy, by the name of its phase's condition: what
// Slipway would install differs. Otherwise the change leaves the add-on as it is, with everybody's edits. Patches don't count: the
// cluster doesn't store them, so nobody knows which are new.
func Changed(env *step.Env, name string) (bool, error) {
	objects, disabled := manifests.CoreDNS, dnsDisabled(env)
	switch name {
	case coreDNSTitle:
	case manifests.KubeProxyName:
		objects, disabled = manifests.KubeProxy, ProxyDisabled(env)
	default:
		return true, nil
	}
	if disabled != "" {
		return false, nil
	}
	list, err := Versions(env, objects)
	return slices.ContainsFunc(list, func(v cluster.Versions) bool { return !equality.Semantic.DeepEqual(v.Old, v.Plain) }), err
}

// AnyChanged reports whether a change of the configuration concerns an add-on that all nodes share.
func AnyChanged(env *step.Env) (bool, error) {
	for _, name := range []string{coreDNSTitle, manifests.KubeProxyName} {
		if changed, err := Changed(env, name); err != nil || changed {
			return changed, err
		}
	}
	return false, nil
}
