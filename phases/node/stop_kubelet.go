// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// kubeletCheck is how often a run looks whether the kubelet is back: a kubelet needs longer than this from its start to its
	// first container.
	kubeletCheck = 200 * time.Millisecond
	// killPause is the least time between two kills. systemd gives up on a unit that starts more than five times in ten seconds,
	// unless the unit says otherwise, and would refuse to start it for us, too.
	killPause = 3 * time.Second
)

// withoutKubelet ends the kubelet, and each one that systemd starts, until release is called; the caller restarts it then. A
// kubelet would start the API server again before etcd has stopped, and that one would hang until etcd is there; so would the
// restarted kubelet, which has to start etcd. systemd starts a killed kubelet again after ten seconds (Restart=always), and an
// API server may take longer to stop. A stopped unit would stay down if this run is interrupted; like this, an interruption
// only costs time. If a kill fails, too.
func withoutKubelet(ctx context.Context, env *step.Env) (release func()) {
	_ = env.Host.KillUnit(ctx, KubeletUnit)
	killed := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check := time.NewTicker(kubeletCheck)
		defer check.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-check.C:
			}
			if time.Since(killed) < killPause {
				continue
			}
			if unit, err := env.Host.Unit(ctx, KubeletUnit); err == nil && unit.MainPID != 0 {
				_ = env.Host.KillUnit(ctx, KubeletUnit)
				killed = time.Now()
			}
		}
	}()
	return func() { cancel(); <-ended }
}
