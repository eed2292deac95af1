// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
)

func kubeletWaitBootstrap() Phase {
	return Phase{
		Name:    "kubelet-wait-bootstrap",
		Summary: "Wait until the kubelet has its own credentials, and remove those it joined with",
		Flags:   []string{"config", "cri-socket", "dry-run"},
		Run:     runKubeletWaitBootstrap,
	}
}

func runKubeletWaitBootstrap(ctx context.Context, env *Env) error {
	n := env.Config
	if err := awaitKubeletConf(ctx, env); err != nil {
		return err
	}
	if err := waitKubelet(ctx, env); err != nil {
		return err
	}
	if err := env.Host.Remove(bootstrapConfPath(n)); err != nil {
		return err
	}
	if !n.NodeLocalCRISocket() {
		if err := env.Cluster.MarkNode(ctx, n.Name, cluster.Mark{Annotations: map[string]string{annotationCRISocket: n.CRISocket}}); err != nil {
			return err
		}
	}
	env.UI.Printf("Node %s has joined the cluster; `kubectl get nodes` on a control plane shows it", n.Name)
	return nil
}

// awaitKubeletConf waits for kubelet.conf and for the certificate that it names.
// The kubelet writes the first at once, the second when the cluster has signed.
func awaitKubeletConf(ctx context.Context, env *Env) error {
	path, limit := kubeletConfPath(env.Config), env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's certificate, up to %s", limit)
	const failure = "the kubelet has no certificate; `journalctl -u kubelet` tells why, and `kubectl get csr` on a control plane whether it asked for one"
	return watched(ctx, env, limit, kubeletTarget(env.Config), failure, func(ctx context.Context) error {
		defer hastening(ctx, env)()
		err := env.Host.AwaitFile(ctx, path)
		if err == nil {
			err = env.Host.AwaitFile(ctx, kubeletClientPEM(env))
		}
		return errors.WithMessage(err, failure)
	})
}

// hastening makes the kubelet of a control plane ask for its certificate as
// soon as this node's own API server can answer. It was refused while that
// started, and the intervals at which it asks again grow to many seconds. What
// it returns ends the effort.
func hastening(ctx context.Context, env *Env) (end func()) {
	if !env.Config.ControlPlane {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := hasten(ctx, env); err != nil && ctx.Err() == nil {
			env.UI.Warnf("the kubelet may take long to ask for its certificate: %v", err)
		}
	}()
	return func() { cancel(); <-ended }
}

// readyInterval is how often an API server that starts is asked whether it is
// ready. It comes before the first question, too: no kubelet is restarted that
// has its certificate.
const readyInterval = 250 * time.Millisecond

func hasten(ctx context.Context, env *Env) error {
	ready := host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"}
	for answered := false; !answered; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(readyInterval):
			answered = env.Host.Probe(ctx, ready) == nil
		}
	}
	if _, err := env.Host.Lstat(kubeletClientPEM(env)); err == nil {
		return nil
	}
	env.UI.Printf("Restarting the kubelet, so that it asks this node's API server for its certificate now")
	return env.Host.RestartUnit(ctx, kubeletUnit)
}
