// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WaitKubelet waits for the kubelet's health endpoint, at the address in its settings and flags.
func WaitKubelet(ctx context.Context, env *step.Env) error {
	probe, found, err := kubeletProbe(env)
	if err != nil {
		return err
	}
	if !found {
		env.UI.Printf("The kubelet has no health endpoint (healthzPort: 0), so there is nothing to wait for")
		return nil
	}
	limit := &env.Settings().Timeouts.KubeletHealthCheck
	env.UI.Printf("Waiting for the kubelet at %s, up to %s", probe.URL, *limit)
	const failure = "the kubelet is not healthy; `journalctl -u kubelet` says why"
	return env.Guard(ctx, limit, env.KubeletTarget(), failure, func(ctx context.Context) error {
		err := Poll(ctx, func(ctx context.Context) error { return env.Host.Probe(ctx, probe) })
		return errors.WithMessage(err, failure)
	})
}

// kubeletAnswers asks the kubelet's health endpoint once. Without one, the kubelet's reports have to do.
func kubeletAnswers(ctx context.Context, env *step.Env) error {
	probe, found, err := kubeletProbe(env)
	if err != nil || !found {
		return err
	}
	return errors.WithMessage(env.Host.Probe(ctx, probe), "the kubelet does not answer its probe")
}

// kubeletProbe is the kubelet's health endpoint; found is false if its settings switch that off.
func kubeletProbe(env *step.Env) (probe host.Probe, found bool, err error) {
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil {
		return probe, false, err
	}
	port := int32(10248)
	if settings.HealthzPort != nil {
		port = *settings.HealthzPort
	}
	address := cmp.Or(settings.HealthzBindAddress, "127.0.0.1")
	probe.URL = "http://" + net.JoinHostPort(address, strconv.Itoa(int(port))) + "/healthz"
	return probe, port != 0, nil
}
