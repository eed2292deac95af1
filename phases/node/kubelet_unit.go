// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

// KubeletUnit is the kubelet's unit.
const KubeletUnit = host.KubeletUnit

// RestartKubelet gives systemd as long as the kubelet has to become healthy. Without an init system, the user has to restart it.
func RestartKubelet(ctx context.Context, env *step.Env) error {
	ctx, cancel := context.WithTimeout(ctx, env.Settings().Timeouts.KubeletHealthCheck)
	defer cancel()
	err := env.Host.OrderUnit(ctx, host.RestartUnit, KubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(err.Error()+": the kubelet is not restarted", "restart it some other way now")
		return nil
	}
	return err
}

// RestartKubeletAndWait restarts the kubelet, and waits for its health endpoint.
func RestartKubeletAndWait(ctx context.Context, env *step.Env) error {
	if err := RestartKubelet(ctx, env); err != nil {
		return err
	}
	return WaitKubelet(ctx, env)
}

// RestartStaleKubelet restarts a kubelet that's older than one of the files: a run was interrupted between write and restart.
func RestartStaleKubelet(ctx context.Context, env *step.Env, paths ...string) error {
	for _, path := range paths {
		stale, err := KubeletIsStale(ctx, env, path)
		if err != nil {
			return err
		}
		if stale {
			env.UI.Printf("Restarting the kubelet, which started before %s was changed", path)
			return RestartKubelet(ctx, env)
		}
	}
	return nil
}

// KubeletIsStale reports whether the kubelet started before the file at path was changed, so it can't have read it; false without
// the file. Without systemd nobody knows; then it warns, and reports false.
func KubeletIsStale(ctx context.Context, env *step.Env, path string) (bool, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return false, host.IgnoreMissing(err)
	}
	unit, err := env.Host.Unit(ctx, KubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(errors.Wrapf(err, "cannot tell whether the kubelet has read %s since it was changed", path).Error(),
			"restart it some other way if it started before that")
		return false, nil
	}
	return err == nil && !unit.ActiveSince.IsZero() && unit.ActiveSince.Before(info.ModTime()), err
}

const (
	// kubeletCheck is how often a run checks for a new kubelet, which needs longer than this to start its first container.
	kubeletCheck = 200 * time.Millisecond
	// killPause is the least time between two kills. By default, systemd gives up on a unit that starts more than five times in
	// ten seconds, and would refuse to start it for us, too.
	killPause = 3 * time.Second
)

// keepKubeletDown kills the kubelet, and each that systemd starts, until release is called; the caller then restarts it. A kubelet
// would start the API server again before etcd has stopped. That API server would hang until etcd is back, and so would the
// restarted kubelet, which has to start etcd. systemd restarts a killed kubelet after ten seconds (Restart=always), and an API
// server may take longer to stop. A stopped unit would stay down after an interruption. This way, interruptions and failed kills
// only cost time.
func keepKubeletDown(ctx context.Context, env *step.Env) (release func()) {
	_ = env.Host.OrderUnit(ctx, host.KillUnit, KubeletUnit)
	killed := time.Now()
	return Repeat(ctx, kubeletCheck, func(ctx context.Context) {
		if time.Since(killed) < killPause {
			return
		}
		if unit, err := env.Host.Unit(ctx, KubeletUnit); err == nil && unit.MainPID != 0 {
			_ = env.Host.OrderUnit(ctx, host.KillUnit, KubeletUnit)
			killed = time.Now()
		}
	})
}

// Repeat calls do at each interval until stop is called or ctx ends.
func Repeat(ctx context.Context, interval time.Duration, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				do(ctx)
			}
		}
	}()
	return func() { cancel(); <-ended }
}
