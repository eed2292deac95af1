// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/preflight"
)

// HostReset undoes what host prepare did to this host, and leaves everything else. It goes by the record of the
// preparation and by the marks on files. Undoing something twice changes nothing more, and the record goes last, so a run
// that was interrupted can be repeated.
func HostReset() []Phase {
	return []Phase{
		{Name: "preflight", Summary: "Check that nothing on this host needs what is removed", Flags: hostResetFlags("ignore-preflight-errors"), Run: runPreflightHostReset},
		{Name: "images", Summary: "Unpin and remove the images that were imported into a container runtime that stays", Flags: hostResetFlags(), Run: runResetImages},
		{Name: "units", Summary: "Stop and disable the container runtime and the kubelet", Flags: hostResetFlags(), Run: runResetUnits},
		{Name: "files", Summary: "Remove programs, units, settings and data", Flags: hostResetFlags(), Run: runResetFiles},
		{Name: "kernel", Summary: "Set kernel parameters back, and turn swap on again", Flags: hostResetFlags(), Run: runResetKernel},
		{Name: "record", Summary: "Remove the record of the preparation", Flags: hostResetFlags(), Run: runResetRecord},
	}
}

func hostResetFlags(more ...string) []string { return append([]string{"dry-run"}, more...) }

func runPreflightHostReset(ctx context.Context, env *Env) error {
	env.UI.Printf("Checking this host")
	sign := func(h host.Reader) (string, error) { return thisnode.Sign(h, env.Config) }
	checks := preflight.HostReset(sign, ownContainerd(env))
	return show(env, preflight.Run(ctx, checks, env.Host, env.Config.IgnorePreflightErrors))
}

// ownContainerd reports whether containerd is from a bundle.
func ownContainerd(env *Env) bool { return env.Host.Made(containerd.UnitPath) }

func runResetImages(ctx context.Context, env *Env) error {
	record, err := readPrepared(env.Host)
	if err != nil || len(record.Images) == 0 || ownContainerd(env) { // then they go with its data
		return err
	}
	images, err := env.Host.Images(ctx, containerd.Socket)
	if err != nil {
		return err
	}
	for _, i := range images {
		for _, name := range i.Names {
			if !slices.Contains(record.Images, name) {
				continue
			}
			if err := forgetImage(ctx, env, name, slices.Contains(record.Imported, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func forgetImage(ctx context.Context, env *Env, name string, imported bool) error {
	if imported {
		env.UI.Printf("Removing image %s", name)
		return env.Host.RemoveImage(ctx, containerd.Socket, name)
	}
	return env.Host.PinImage(ctx, containerd.Socket, name, false)
}

// runResetUnits stops what runs from files that are removed next.
func runResetUnits(ctx context.Context, env *Env) error {
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	var stop []string
	if env.Host.Made(kubeletconfig.DropInPath) {
		stop = append(stop, kubeletUnit)
	}
	if ownContainerd(env) {
		stop = append(stop, containerd.Unit)
	}
	for _, unit := range stop {
		state, err := unitState(ctx, env, unit)
		if err != nil {
			return err
		}
		if slices.Contains([]string{"active", "activating", "reloading"}, state.ActiveState) {
			env.UI.Printf("Stopping %s", unit)
			if err := env.Host.StopUnit(ctx, unit); err != nil {
				return err
			}
		}
	}
	for _, unit := range record.Enabled {
		env.UI.Printf("Disabling %s", unit)
		if err := env.Host.DisableUnit(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

func runResetKernel(ctx context.Context, env *Env) error {
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(record.Parameters)) {
		changed, err := env.Host.SetParameter(name, record.Parameters[name])
		if ignoreMissing(err) != nil { // an interface may be gone
			return err
		}
		if changed {
			env.UI.Printf("Set %s back to %s", strings.ReplaceAll(name, "/", "."), record.Parameters[name])
		}
	}
	for _, unit := range record.Masked {
		if err := env.Host.UnmaskUnit(ctx, unit); err != nil {
			return err
		}
	}
	for _, area := range record.Swap {
		env.UI.Printf("Turning on swap on %s", area)
		if err := env.Host.SwapOn(area); ignoreMissing(err) != nil {
			return err
		}
	}
	if !record.Prepared {
		return nil
	}
	return removeEmptyTables(ctx, env, record.EmptyTables)
}

func runResetRecord(_ context.Context, env *Env) error {
	if err := env.Host.Remove(preparedPath); err != nil {
		return err
	}
	return (&fileReset{Env: env}).removeEmpty(filepath.Dir(preparedPath))
}

// removeEmptyTables removes the tables that iptables has made for the kubelet, kube-proxy and network plugins, and that
// have no rules any more.
func removeEmptyTables(ctx context.Context, env *Env, before []string) error {
	tables, err := env.Host.EmptyTables()
	for _, t := range tables {
		if slices.Contains(before, t.Name) {
			continue
		}
		env.UI.Printf("Removing %s", t)
		if err := env.Host.RemoveLeftover(ctx, t); err != nil {
			return err
		}
	}
	return err
}
