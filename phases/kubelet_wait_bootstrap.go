// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
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

// unitInterval is how often systemd is asked about a kubelet that is waited for.
const unitInterval = 500 * time.Millisecond

// awaitKubeletConf waits for the file that the kubelet writes when the cluster
// has signed its certificate, and gives up early when the kubelet cannot run.
func awaitKubeletConf(ctx context.Context, env *Env) error {
	path, limit := kubeletConfPath(env.Config), env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's certificate, up to %s", limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch := kubeletWatch{env: env}
		for {
			var passing transientError
			if err := watch.judge(ctx, errors.New("there is no certificate yet")); !errors.As(err, &passing) {
				giveUp(err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(unitInterval):
			}
		}
	}()
	err := env.Host.AwaitFile(ctx, path)
	giveUp(nil)
	<-watched
	return errors.WithMessage(err, "the kubelet has no certificate; `journalctl -u kubelet` tells why, and `kubectl get csr` on a control plane whether it asked for one")
}
