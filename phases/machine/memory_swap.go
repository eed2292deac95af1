// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// swapTarget turns on all swap that systemd knows at boot: from /etc/fstab, partitions found by their type, and areas of
// zram-generator. Rule: systemd.special(7).
const swapTarget = "swap.target"

// swapServices turn on areas of their own at boot, which systemd doesn't know: from the packages zram-tools, zram-config and
// dphys-swapfile.
var swapServices = []string{"zramswap.service", "zram-config.service", "dphys-swapfile.service"}

// runSwap turns swap off, now and at boot. An empty list of areas says nothing about the next boot, as after `swapoff -a`, so it
// masks the units in any case. This leaves /etc/fstab and the services' settings unchanged.
func (p *Prepare) runSwap(ctx context.Context, env *step.Env) error {
	areas, err := env.Host.Swap()
	if err != nil {
		return err
	}
	setting, err := swapTolerance(env)
	if err == nil && setting != "" {
		if len(areas) > 0 && !p.KeepSwap {
			env.UI.Printf("Swap stays on (%s): the kubelet is configured to run with it (%s)", strings.Join(areas, ", "), setting)
		}
		return nil
	}
	if p.KeepSwap {
		if len(areas) > 0 {
			env.UI.Warn("swap stays on ("+strings.Join(areas, ", ")+"), and the kubelet does not start with it by default",
				"set failSwapOn: false in the KubeletConfiguration that you give to `slipway init`")
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(areas) > 0 {
		if err := p.note(env, func(r *prepared) { r.Swap = with(r.Swap, areas...) }); err != nil {
			return err
		}
	}
	if err := p.maskSwap(ctx, env); err != nil {
		return err
	}
	for _, area := range areas {
		env.UI.Printf("Turning off swap on %s", area)
		if err := env.Host.SwapOff(area); err != nil {
			return err
		}
	}
	return nil
}

// swapTolerance returns the setting with which the kubelet runs with swap, which its Pods may need; empty if it doesn't. On a node, that's
// its kubelet; elsewhere, the kubelet that this configuration and the administrator's files are for.
func swapTolerance(env *step.Env) (string, error) {
	m := env.Machine
	onNode, err := host.Exists(env.Host, m.Paths.KubeletKubeconfig())
	if err != nil {
		return "", err
	}
	if !onNode {
		return preflight.SwapTolerance(m, env.Host), nil
	}
	settings, err := thisnode.KubeletSettings(env.Host, m)
	if err != nil || settings.FailSwapOn == nil || *settings.FailSwapOn {
		return "", err
	}
	by := thisnode.ReadKubeletOverrides(env.Host, m).Of([]string{"failSwapOn"}, true)
	return cmp.Or(by, "failSwapOn in "+m.Paths.KubeletConfig()), nil
}

func (p *Prepare) maskSwap(ctx context.Context, env *step.Env) error {
	for _, unit := range slices.Concat([]string{swapTarget}, swapServices) {
		state, err := unitState(ctx, env, unit)
		if err != nil {
			return err
		}
		startsAtBoot := unit == swapTarget || state.UnitFileState == "enabled" || state.UnitFileState == "generated"
		if !startsAtBoot || state.UnitFileState == "masked" {
			continue
		}
		if err := p.note(env, func(r *prepared) { r.Masked = with(r.Masked, unit) }); err != nil {
			return err
		}
		if err := env.Host.OrderUnit(ctx, host.MaskUnit, unit); err != nil {
			return err
		}
	}
	return nil
}
