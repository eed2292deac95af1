// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func (p *Prepare) kubelet() step.Phase {
	return step.Phase{
		Name:    "kubelet",
		Summary: "Write the kubelet's unit and drop-in, and enable it",
		Flags:   prepareFlags(),
		Run:     p.runKubelet,
	}
}

// runKubelet makes the unit start the bundle's kubelet, whatever a package has installed. It's enabled but not started: init and
// join start it with its settings.
func (p *Prepare) runKubelet(ctx context.Context, env *step.Env) error {
	if !p.has("kubelet") || kubeletIsGood(ctx, env, p.Bundle.Index().KubernetesVersion) {
		return p.enableInstalled(ctx, env)
	}
	dropIn := ownership.File{Path: kubeletconfig.DropInPath, Data: kubeletconfig.DropIn(filepath.Join(programDir, "kubelet")), Mode: 0o644}
	changed, err := ensureFiles(ctx, env, dropIn)
	if err == nil {
		err = reloadFor(ctx, env, node.KubeletUnit, changed)
	}
	if err != nil {
		return err
	}
	if err := p.enable(ctx, env, node.KubeletUnit); err != nil {
		return err
	}
	return p.restartReplaced(ctx, env, changed)
}

// restartReplaced restarts a kubelet whose program or settings were replaced. Its Pods go on, except static Pods that another
// minor version takes for new.
func (p *Prepare) restartReplaced(ctx context.Context, env *step.Env, changed bool) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.ActiveState != "active" {
		return err
	}
	if !changed && !state.Replaced {
		return p.finishTurn(ctx, env)
	}
	if _, err := env.Host.Lstat(thisnode.KubeletConf(env.Config)); err != nil {
		return host.IgnoreMissing(err) // it waits for its settings
	}
	if p.ControlPlane != nil {
		return p.restartInTurn(ctx, env)
	}
	return restartNow(ctx, env)
}

func restartNow(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Restarting the kubelet")
	if err := env.Host.OrderUnit(ctx, host.RestartUnit, node.KubeletUnit); err != nil {
		return err
	}
	return node.WaitKubelet(ctx, env)
}

// kubeletIsGood reports whether the host already has this version of the kubelet from elsewhere, and its unit starts it.
func kubeletIsGood(ctx context.Context, env *step.Env, version string) bool {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.Program == "" || strings.HasPrefix(state.Program, programDir+"/") {
		return false
	}
	text, err := env.Host.ProgramVersion(ctx, state.Program)
	return err == nil && text == "Kubernetes "+version
}

func (p *Prepare) enableInstalled(ctx context.Context, env *step.Env) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.LoadState != "loaded" {
		return err
	}
	return p.enable(ctx, env, node.KubeletUnit)
}

// reloadFor makes systemd reread a unit's files if this run or an interrupted one changed them.
func reloadFor(ctx context.Context, env *step.Env, unit string, changed bool) error {
	state, err := unitState(ctx, env, unit)
	if err != nil || !changed && state.LoadState == "loaded" && state.Current {
		return err
	}
	return env.Host.ReloadUnits(ctx)
}
