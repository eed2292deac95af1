// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

// The units to put a node back without anybody's help. There are two, because the second restarts the kubelet, and systemd would
// make that wait for the first to end.
const (
	// filesUnit puts the files back after a reboot, before a kubelet could start the new Pods.
	filesUnit = "slipway-way-back.service"
	// watchUnit waits for the node's lock, which the kernel takes from a run that dies, then puts the node back.
	watchUnit = "slipway-watch.service"

	unitDir = "/etc/systemd/system"
)

// units are the units' files; program is this program's path.
func units(program string) map[string]string {
	program = strconv.Quote(strings.ReplaceAll(program, "%", "%%"))
	const wanted = "\n[Install]\nWantedBy=multi-user.target\n"
	return map[string]string{
		filesUnit: "[Unit]\nDescription=Roll back an unproven change of this node's configuration\n" +
			"Before=kubelet.service\nRequiresMountsFor=/etc/kubernetes /var/lib/kubelet\n\n" +
			"[Service]\nType=oneshot\nExecStart=" + program + " reconfigure way-back --files\n" + wanted,
		watchUnit: "[Unit]\nDescription=Put this node back if a change of its configuration is interrupted\n" +
			"After=" + filesUnit + " network-online.target\nStartLimitIntervalSec=0\n\n" +
			"[Service]\nType=exec\nExecStart=" + program + " reconfigure way-back\nRestart=on-failure\nRestartSec=10s\n" + wanted,
	}
}

// installUnits makes systemd put this node back if the run ends early, or the machine restarts.
func installUnits(ctx context.Context, env *step.Env, program string) error {
	texts := units(program)
	if err := env.Host.EnsureDir(unitDir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{filesUnit, watchUnit} {
		if _, err := env.Host.WriteFile(filepath.Join(unitDir, name), []byte(texts[name]), 0o644); err != nil {
			return err
		}
	}
	if err := env.Host.ReloadUnits(ctx); err != nil {
		return err
	}
	for _, name := range []string{filesUnit, watchUnit} {
		if err := env.Host.OrderUnit(ctx, host.EnableUnit, name); err != nil {
			return err
		}
	}
	return env.Host.OrderUnit(ctx, host.StartUnit, watchUnit)
}

// RemoveUnits removes the units, once the change counts or is put back. A watch that calls it itself must not stop itself.
func RemoveUnits(ctx context.Context, env *step.Env, byWatch bool) error {
	if !exists(env, filepath.Join(unitDir, filesUnit)) && !exists(env, filepath.Join(unitDir, watchUnit)) {
		return nil
	}
	for _, name := range []string{filesUnit, watchUnit} {
		unit, err := env.Host.Unit(ctx, name)
		if err != nil {
			return err
		}
		if unit.LoadState == "not-found" {
			continue
		}
		if name == watchUnit && !byWatch {
			if err := env.Host.OrderUnit(ctx, host.StopUnit, name); err != nil {
				return err
			}
		}
		if err := env.Host.OrderUnit(ctx, host.DisableUnit, name); err != nil {
			return err
		}
	}
	for _, name := range []string{filesUnit, watchUnit} {
		if err := env.Host.Remove(filepath.Join(unitDir, name)); err != nil {
			return err
		}
	}
	return env.Host.ReloadUnits(ctx)
}
