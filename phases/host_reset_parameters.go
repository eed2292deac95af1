// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/preflight"
)

// resetParameters sets kernel parameters back to their earlier values, but for those that somebody else has set since, sets at
// boot, or needs.
func resetParameters(ctx context.Context, env *Env, before map[string]string) error {
	runtime, err := otherRuntime(ctx, env)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		text, err := env.Host.ReadFile(host.ProcSys + name)
		if err != nil {
			if ignoreMissing(err) != nil { // an interface may be gone
				return err
			}
			continue
		}
		now, shown := strings.TrimSpace(string(text)), strings.ReplaceAll(name, "/", ".")
		if now == before[name] {
			continue
		}
		if why := parameterStays(env, name, now, before[name], runtime); why != "" {
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

// parameterStays says why a parameter does not get its earlier value; empty if it does.
func parameterStays(env *Env, name, now, before, runtime string) string {
	if ours := valueOnNode(name); ours != "" && now != ours {
		return "it was changed since this host was prepared"
	}
	file, value, err := preflight.BootParameter(env.Host, sysctlPath, name)
	switch {
	case err != nil:
		return "cannot tell whether a file sets it at boot: " + err.Error()
	case file != "" && value != before:
		return file + " sets it to " + value + " at boot"
	case runtime != "" && forwards(name):
		return runtime + " may need it"
	}
	return ""
}

// valueOnNode is the value that a preparation, or what runs on a node, gives to a parameter; empty if it differs between nodes.
func valueOnNode(name string) string {
	if value, of := nodeParameters[name]; of {
		return value
	}
	if strings.HasSuffix(name, "/accept_ra") {
		return "2"
	}
	return "1"
}

// forwards reports whether containers reach others by a parameter, whatever has started them.
func forwards(name string) bool {
	return strings.HasSuffix(name, "/ip_forward") || strings.HasSuffix(name, "/forwarding") || strings.HasPrefix(name, "net/bridge/")
}

// otherRuntime is the unit of a container runtime that runs on this host and is not from a bundle. Some set the parameters that
// they need when they start, and only then.
func otherRuntime(ctx context.Context, env *Env) (string, error) {
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
