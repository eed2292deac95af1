// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// kubeletCheck is how often a run checks for a new kubelet, which needs longer than this to start its first container.
	kubeletCheck = 200 * time.Millisecond
	// killPause is the least time between two kills. By default, systemd gives up on a unit that starts more than five times in
	// ten seconds, and would refuse to start it for us, too.
	killPause = 3 * time.Second
)

// withoutKubelet kills the kubelet, and each that systemd starts, until release is called; the caller then restarts it. A kubelet
// would start the API server again before etcd has stopped. That API server would hang until etcd is back, and so would the
// restarted kubelet, which has to start etcd. systemd restarts a killed kubelet after ten seconds (Restart=always), and an API
// server may take longer to stop. A stopped unit would stay down after an interruption. This way, interruptions and failed kills
// only cost time.
func withoutKubelet(ctx context.Context, env *step.Env) (release func()) {
	_ = env.Host.OrderUnit(ctx, host.KillUnit, KubeletUnit)
	killed := time.Now()
	return repeat(ctx, kubeletCheck, func(ctx context.Context) {
		if time.Since(killed) < killPause {
			return
		}
		if unit, err := env.Host.Unit(ctx, KubeletUnit); err == nil && unit.MainPID != 0 {
			_ = env.Host.OrderUnit(ctx, host.KillUnit, KubeletUnit)
			killed = time.Now()
		}
	})
}

// repeat calls do at each interval until stop is called or ctx ends.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context)) (stop func()) {
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
