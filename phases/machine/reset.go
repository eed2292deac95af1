// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Reset undoes host prepare, and leaves everything else. It follows the preparation's record and the marks on files. Undoing
// something twice changes nothing more, and the record goes last, so an interrupted run can be repeated.
func Reset() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Check that everything to be removed is unused", Flags: hostResetFlags("ignore-preflight-errors"), Run: runPreflightHostReset},
		{Name: "images", Summary: "Unpin and remove the images that were imported into a container runtime that stays", Flags: hostResetFlags(), Run: runResetImages},
		{Name: "units", Summary: "Stop and disable the container runtime and the kubelet", Flags: hostResetFlags(), Run: runResetUnits},
		{Name: "files", Summary: "Remove programs, units, settings and data", Flags: hostResetFlags(), Run: runResetFiles},
		{Name: "kernel", Summary: "Set kernel parameters back, and turn swap on again", Flags: hostResetFlags(), Run: runResetKernel},
		{Name: "record", Summary: "Remove the record of the preparation", Flags: hostResetFlags(), Run: runResetRecord},
	}
}

func hostResetFlags(more ...string) []string { return append([]string{"dry-run"}, more...) }

// runResetUnits stops the units whose files are removed next.
func runResetUnits(ctx context.Context, env *step.Env) error {
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	var stop []string
	if env.Host.CreatedBySlipway(kubeletconfig.DropInPath) {
		stop = append(stop, node.KubeletUnit)
	}
	own, err := ownContainerd(ctx, env)
	if err != nil {
		return err
	}
	if own {
		stop = append(stop, containerd.Unit)
	}
	for _, unit := range stop {
		state, err := unitState(ctx, env, unit)
		if err != nil {
			return err
		}
		if slices.Contains([]string{"active", "activating", "reloading"}, state.ActiveState) {
			env.UI.Printf("Stopping %s", unit)
			if err := env.Host.OrderUnit(ctx, host.StopUnit, unit); err != nil {
				return err
			}
		}
	}
	for _, unit := range record.Enabled {
		if err := disable(ctx, env, unit, record, own); err != nil {
			return err
		}
	}
	return nil
}

// disable disables an enabled unit, unless somebody has put another in its place. Earlier releases didn't record the file, or had put the
// unit elsewhere.
func disable(ctx context.Context, env *step.Env, unit string, record prepared, ownContainerd bool) error {
	state, err := unitState(ctx, env, unit)
	if err != nil {
		return err
	}
	file := record.UnitFiles[unit]
	fromBundle := unit == containerd.Unit && (file == "" || file == filepath.Join(unitDir, unit) || record.Containerd && slices.Contains(unitPaths(unit), file))
	replaced := file != "" && state.Fragment != file && !env.Host.CreatedBySlipway(state.Fragment)
	theirs := replaced || fromBundle && !ownContainerd
	if theirs && state.LoadState == "loaded" {
		env.UI.Printf("Leaving %s enabled: another file has taken the place of its unit file", unit)
		return nil
	}
	env.UI.Printf("Disabling %s", unit)
	return env.Host.OrderUnit(ctx, host.DisableUnit, unit)
}

func runResetKernel(ctx context.Context, env *step.Env) error {
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	if err := resetParameters(ctx, env, record.Parameters); err != nil {
		return err
	}
	for _, unit := range record.Masked {
		if err := env.Host.OrderUnit(ctx, host.UnmaskUnit, unit); err != nil {
			return err
		}
	}
	for _, area := range record.Swap {
		env.UI.Printf("Turning on swap on %s", area)
		if err := env.Host.SwapOn(area); host.IgnoreMissing(err) != nil { // zram's has to be made first, for example
			env.UI.Warn(fmt.Sprintf("swap stays off until the next boot: %v", err), "`systemctl start swap.target` turns on all swap that systemd knows")
		}
	}
	return nil
}

func runResetRecord(_ context.Context, env *step.Env) error {
	if err := env.Host.Remove(thisnode.PreparedPath); err != nil {
		return err
	}
	return (&fileReset{Env: env}).removeEmpty(filepath.Dir(thisnode.PreparedPath))
}
