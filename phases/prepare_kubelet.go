// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
)

func (p *Prepare) kubelet() Phase {
	return Phase{
		Name:    "kubelet",
		Summary: "Write the kubelet's unit and drop-in, and enable it",
		Flags:   prepareFlags(),
		Run:     p.runKubelet,
	}
}

// runKubelet makes the bundle's kubelet the one that starts, whatever a package has installed. It is enabled and not
// started: init and join start it with its settings.
func (p *Prepare) runKubelet(ctx context.Context, env *Env) error {
	if !p.has("kubelet") {
		return p.enableInstalled(ctx, env)
	}
	program := filepath.Join(programDir, "kubelet")
	files := []ownership.File{{Path: kubeletconfig.DropInPath, Data: kubeletconfig.DropIn(program), Mode: 0o644}}
	state, err := env.Host.Unit(ctx, kubeletUnit)
	if err != nil {
		return err
	}
	if state.LoadState == "not-found" || state.Fragment == kubeletconfig.UnitPath {
		files = append(files, ownership.File{Path: kubeletconfig.UnitPath, Data: kubeletconfig.Unit(program), Mode: 0o644})
	}
	changed, err := ensureFiles(env, files...)
	if err != nil {
		return err
	}
	if changed {
		if err := env.Host.ReloadUnits(ctx); err != nil {
			return err
		}
	}
	return p.enable(ctx, env, kubeletUnit)
}

// enableInstalled enables a kubelet that is there already.
func (p *Prepare) enableInstalled(ctx context.Context, env *Env) error {
	state, err := env.Host.Unit(ctx, kubeletUnit)
	if err != nil || state.LoadState != "loaded" {
		return err
	}
	return p.enable(ctx, env, kubeletUnit)
}
