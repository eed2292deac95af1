// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

const overridesCheck = "KubeletOverrides"

func (r *Run) overridesQuestion(env *step.Env) preflight.Check {
	return question(env, overridesCheck, "no drop-in and no flag overrides the kubelet's settings that change", r.overridden)
}

// overridden warns of settings changing in the kubelet's config.yaml and nowhere else: a file of --config-dir or a flag sets them.
func (r *Run) overridden(_ context.Context, env *step.Env) (found []fault.Finding) {
	path := env.Config.Paths.KubeletConfig()
	changed, err := r.changedSettings(env, path)
	if err != nil {
		return []fault.Finding{failedLook(err)}
	}
	overrides := thisnode.ReadKubeletOverrides(env.Host, env.Settings())
	for _, s := range changed {
		if by := overrides.Of(s.path, s.value); by != "" {
			name := strings.Join(s.path, ".")
			found = append(found, fault.NewFinding(overridesCheck, fault.Warning, "change or remove that setting",
				"%s changes in %s, but not for the kubelet: %s overrides it", name, path, by))
		}
	}
	return found
}

// setting is a field of the kubelet's settings; its value is nil if it's missing.
type setting struct {
	path  []string
	value any
}

// changedSettings returns what this run changes in config.yaml, with the next values.
func (r *Run) changedSettings(env *step.Env, path string) ([]setting, error) {
	now, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return nil, err
	}
	next, err := r.nextSettings(env, path)
	if err != nil || next == nil {
		return nil, err
	}
	var before, after map[string]any
	if err := yaml.Unmarshal(now, &before); err != nil {
		return nil, errors.WithStack(err)
	}
	if err := yaml.Unmarshal(next, &after); err != nil {
		return nil, errors.WithStack(err)
	}
	return differing(nil, before, after), nil
}

// nextSettings is the next config.yaml; nil if this run leaves it alone.
func (r *Run) nextSettings(env *step.Env, path string) ([]byte, error) {
	if r.Reverts == nil {
		return kubelet.NextConfig(env)
	}
	for _, f := range r.Reverts.Files {
		if f.Path == path {
			return r.Reverts.OriginalContent(env, f)
		}
	}
	return nil, nil
}

// differing compares maps down to values and lists. A missing map is an empty one.
func differing(path []string, before, after any) (list []setting) {
	a, isMap := before.(map[string]any)
	b, isNext := after.(map[string]any)
	if !isMap && !isNext || before != nil && !isMap || after != nil && !isNext {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return []setting{{path, after}}
	}
	names := maps.Clone(a)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, differing(append(slices.Clone(path), name), a[name], b[name])...)
	}
	return list
}
