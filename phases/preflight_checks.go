// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/preflight"
)

// CheckInit runs the preflight checks of init, and changes nothing: it pulls no image.
func CheckInit(ctx context.Context, env *Env) ([]preflight.Result, error) {
	checks, err := initChecks(ctx, env)
	if err != nil {
		return nil, err
	}
	return preflight.Ask(ctx, checks, env.Host, env.Config.IgnorePreflightErrors), nil
}

// CheckJoin runs the preflight checks of join, and changes nothing. If the cluster is unknown, the checks that depend
// on it are left out.
func CheckJoin(ctx context.Context, env *Env) ([]preflight.Result, error) {
	checks, err := joinChecks(env)
	if err != nil {
		return nil, err
	}
	return preflight.Ask(ctx, checks, env.Host, env.Config.IgnorePreflightErrors), nil
}

// CheckNames lists the checks of init and join for a control plane.
func CheckNames(n *config.Node) []string {
	var names []string
	for _, c := range slices.Concat(preflight.Init(n, nil), preflight.JoinControlPlane(n, nil)) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

func initChecks(ctx context.Context, env *Env) ([]preflight.Check, error) {
	if _, err := networkObjects(env); err != nil { // before a cluster is made that it cannot be installed in
		return nil, err
	}
	wanted, err := wantedManifests(env)
	if err != nil {
		return nil, err
	}
	n, err := asStarted(env)
	if err != nil {
		return nil, err
	}
	stored := storedCompares(ctx, env)
	switch {
	case stored.same:
		acceptEdited(env, wanted)
	case env.Unfinished:
		acceptReplaced(ctx, env, wanted)
	}
	same := preflight.Configuration(func(context.Context) []fault.Fault { return differences(env, stored) })
	return append(preflight.Init(n, wanted), same), nil
}

func joinChecks(env *Env) ([]preflight.Check, error) {
	n, err := asStarted(env)
	if err != nil {
		return nil, err
	}
	if n.ControlPlane {
		return preflight.JoinControlPlane(n, leftovers(env)), nil
	}
	return preflight.JoinWorker(n, leftovers(env)), nil
}

// asStarted returns the node with the settings that its kubelet will read, including the user's patches: the checks
// are about what will be in force.
func asStarted(env *Env) (*config.Node, error) {
	data, _, err := kubeletConfigYAML(env)
	if err != nil {
		return nil, err
	}
	n := *env.Config
	n.Kubelet = kubeletv1beta1.KubeletConfiguration{}
	return &n, errors.Wrap(yaml.Unmarshal(data, &n.Kubelet), "the patched KubeletConfiguration")
}
