// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// TestControlPlaneKubeletIsHastened: a kubelet that was refused by its own API
// server while that started is restarted once it is ready; one that has its
// certificate is not, nor is a worker's.
func TestControlPlaneKubeletIsHastened(t *testing.T) {
	const restart = "restart kubelet.service"
	for _, tt := range []struct {
		name             string
		plane, has, want bool
	}{
		{"control plane", true, false, true},
		{"control plane with a certificate", true, true, false},
		{"worker", false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newJoinStage(t)
			s.host.probe = func(context.Context, host.Probe) error { return nil }
			s.Config.ControlPlane = tt.plane
			if tt.has {
				s.bootstrapped(t, s.ca, "cp-1", time.Now().Add(time.Hour))
			}
			waited := make(chan error, 1)
			go func() { waited <- awaitKubeletConf(t.Context(), s.Env) }()
			time.Sleep(2 * readyInterval)
			s.host.mu.Lock()
			restarted := slices.Contains(s.host.jobs, restart)
			s.host.mu.Unlock()
			if restarted != tt.want {
				t.Errorf("restarted: %v", restarted)
			}
			s.bootstrapped(t, s.ca, "cp-1", time.Now().Add(time.Hour))
			if err := <-waited; err != nil {
				t.Error(err)
			}
		})
	}
}
