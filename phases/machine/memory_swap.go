// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

// swapTarget starts all swap areas at boot, wherever they come from: systemd.special(7).
const swapTarget = "swap.target"

// runSwap turns swap off if there is any, now or only at boot, as after `swapoff -a`. Masking one unit keeps every area off at
// boot, and /etc/fstab unchanged.
func (p *Prepare) runSwap(ctx context.Context, env *step.Env) error {
	areas, err := env.Host.Swap()
	if err != nil {
		return err
	}
	if len(areas) == 0 {
		if atBoot, err := swapAtBoot(env.Host); err != nil || !atBoot || p.KeepSwap {
			return err
		}
	}
	if p.KeepSwap {
		env.UI.Warn("swap stays on ("+strings.Join(areas, ", ")+"), and the kubelet does not start with it by default",
			"set failSwapOn: false in the KubeletConfiguration that you give to `slipway init`")
		return nil
	}
	if err := p.note(env, func(r *prepared) { r.Swap = with(r.Swap, areas...) }); err != nil {
		return err
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

// swapAtBoot reports whether /etc/fstab has swap that's turned on at boot: fstab(5).
func swapAtBoot(h host.Host) (bool, error) {
	text, err := host.ReadIfExists(h, "/etc/fstab")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[0], "#") || fields[2] != "swap" {
			continue
		}
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), "noauto") {
			return true, nil
		}
	}
	return false, nil
}

func (p *Prepare) maskSwap(ctx context.Context, env *step.Env) error {
	state, err := unitState(ctx, env, swapTarget)
	if err != nil || state.UnitFileState == "masked" {
		return err
	}
	if err := p.note(env, func(r *prepared) { r.Masked = with(r.Masked, swapTarget) }); err != nil {
		return err
	}
	return env.Host.OrderUnit(ctx, host.MaskUnit, swapTarget)
}
