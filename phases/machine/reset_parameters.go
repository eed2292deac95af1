// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// resetParameters restores kernel parameters' earlier values, unless somebody else has set one, sets it at boot, or needs it.
func resetParameters(ctx context.Context, env *step.Env, before map[string]string) error {
	forwarding, err := needsForwarding(ctx, env)
	if err != nil {
		return err
	}
	for _, name := range parametersInOrder(before) {
		text, err := env.Host.ReadFile(host.ProcSys + name)
		if err != nil {
			if host.IgnoreMissing(err) != nil { // an interface may be gone
				return err
			}
			continue
		}
		now, shown := strings.TrimSpace(string(text)), strings.ReplaceAll(name, "/", ".")
		if now == before[name] {
			continue
		}
		why := parameterStays(env, name, now, before[name], forwarding)
		if why == "" && acceptsRoutes(name) {
			why = routesStay(env, before)
		}
		if why != "" {
			env.UI.Printf("Leaving %s at %s: %s", shown, now, why)
			continue
		}
		if _, err := env.Host.SetParameter(name, before[name]); err != nil {
			return err
		}
		env.UI.Printf("Set %s back to %s", shown, before[name])
	}
	return nil
}

// parametersInOrder has accept_ra last: it depends on forwarding.
func parametersInOrder(before map[string]string) []string {
	return slices.SortedFunc(maps.Keys(before), func(a, b string) int {
		if byRoutes := cmp.Compare(strings.Count(a, acceptRoutes), strings.Count(b, acceptRoutes)); byRoutes != 0 {
			return byRoutes
		}
		return cmp.Compare(a, b)
	})
}

// parameterStays says why a parameter doesn't get its earlier value; "" if it does. forwarding is why packets must be forwarded.
func parameterStays(env *step.Env, name, now, before, forwarding string) string {
	if ours := valueOnNode(name); ours != "" && now != ours {
		return "it was changed since this host was prepared"
	}
	file, value, err := preflight.BootParameter(env.Host, sysctlPath, name)
	switch {
	case err != nil:
		return "cannot tell whether a file sets it at boot: " + err.Error()
	case file != "" && value != before:
		return file + " sets it to " + value + " at boot"
	case forwarding != "" && forwards(name):
		return forwarding
	}
	return ""
}

// valueOnNode is the value a preparation or a node's programs give to a parameter; "" if it differs between nodes.
func valueOnNode(name string) string {
	if value, of := nodeParameters[name]; of {
		return value
	}
	if acceptsRoutes(name) {
		return "2"
	}
	return "1"
}

// otherRuntime is the unit of a running container runtime not from a bundle. Some set the parameters they need only at start.
func otherRuntime(ctx context.Context, env *step.Env) (string, error) {
	own, err := ownContainerd(ctx, env)
	if err != nil {
		return "", err
	}
	units := []string{"docker.service"}
	for _, r := range knownRuntimes() {
		units = append(units, r.unit)
	}
	for _, unit := range units {
		state, err := unitState(ctx, env, unit)
		if err != nil {
			return "", err
		}
		if state.ActiveState == "active" && (unit != containerd.Unit || !own) {
			return unit, nil
		}
	}
	return "", nil
}
