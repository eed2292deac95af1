// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WaitBootstrap is the phase kubelet-wait-bootstrap of join.
func WaitBootstrap() step.Phase {
	return step.Phase{
		Name:    "kubelet-wait-bootstrap",
		Summary: "Wait until the kubelet has its own credentials, and remove its credentials for joining",
		Flags:   []string{"config", "cri-socket", "dry-run"},
		Run:     runKubeletWaitBootstrap,
	}
}

// runKubeletWaitBootstrap reports that the node has joined once the kubelet has reported to the cluster in this run, with a
// certificate of this cluster. Until then, the join credentials stay.
func runKubeletWaitBootstrap(ctx context.Context, env *step.Env) error {
	n := env.Config
	now := env.Host.Now()
	began := now
	if n.Join != nil && !n.Join.Began.IsZero() { // by the present clock, which may have been set since
		began = now.Round(0).Add(-now.Sub(n.Join.Began))
	}
	if err := awaitKubeletConf(ctx, env); err != nil {
		return err
	}
	if err := node.WaitKubelet(ctx, env); err != nil {
		return err
	}
	if err := awaitReport(ctx, env, began); err != nil {
		return err
	}
	// Without these, the node would need the credentials for joining again.
	for _, path := range []string{n.Paths.KubeletKubeconfig(), thisnode.KubeletClientPEM(env.Host, &n.Machine)} {
		if err := host.IgnoreMissing(env.Host.SyncFiles(path)); err != nil {
			return err
		}
	}
	if err := env.Host.Remove(n.Paths.BootstrapKubeconfig()); err != nil {
		return err
	}
	if err := awaitSandbox(ctx, env); err != nil {
		return err
	}
	env.UI.Nextf("Node %s has joined the cluster; `kubectl get nodes` on a control plane shows it", thisnode.RegisteredName(env.Host, env.Config))
	return nil
}

// awaitKubeletConf waits for kubelet.conf and for the certificate it names. The kubelet writes the first at once, and the second
// when the cluster has signed it; on a host that had joined before, it replaces an expired certificate.
func awaitKubeletConf(ctx context.Context, env *step.Env) error {
	path, limit := env.Config.Paths.KubeletKubeconfig(), &env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's certificate, up to %s", *limit)
	const failure = "the kubelet has no certificate; `journalctl -u kubelet` shows why, and `kubectl get csr` on a control plane whether it asked for one"
	pem := thisnode.KubeletClientPEM(env.Host, env.Settings())
	_, missing := env.Host.Lstat(pem)
	return env.Guard(ctx, limit, env.KubeletTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		if env.Config.ControlPlane && missing != nil {
			group.Go(func() error { restartWhenReady(ctx, env); return nil })
		}
		group.Go(func() error {
			began := env.Host.Now()
			err := env.Host.AwaitFile(ctx, path, nil)
			if err == nil && !keepsCertificate(env) {
				err = env.Host.AwaitFile(ctx, pem, func(data []byte) error {
					return thisnode.ClientCertificateCheck(env.Host, pem, thisnode.RegisteredName(env.Host, env.Config))(data)
				})
			}
			if err == nil && !env.Config.ControlPlane && missing != nil && env.Host.Now().Sub(began) > maxCertificateWait {
				restartNow(ctx, env, "so that it registers its node now")
			}
			return errors.WithMessage(err, failure)
		})
		return group.Wait()
	})
}

// keepsCertificate reports whether the kubelet uses a given certificate, valid for this node, and doesn't rotate it.
func keepsCertificate(env *step.Env) bool {
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil || settings.RotateCertificates {
		return false
	}
	conf, err := thisnode.ReadKubeletFile(env.Host, env.Config.Paths.KubeletKubeconfig())
	return err == nil && conf.CheckFor(env.Host, thisnode.RegisteredName(env.Host, env.Config)) == nil
}

// unknownIssuer returns an error if the kubelet has a certificate that none of the CAs this node knows has signed. That isn't
// wrong by itself: API servers may trust CAs for their clients that nodes never see, and a CA may be about to be replaced. So it
// only explains why a kubelet doesn't report.
func unknownIssuer(env *step.Env) error {
	path := thisnode.KubeletClientPEM(env.Host, env.Settings())
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return err
	}
	trusted, err := clusterCAs(env)
	if err != nil {
		return err
	}
	return checkIssuer(env, path, data, trusted)
}

// clusterCAs returns the cluster's CAs as this node knows them: the CAs in kubelet.conf and, while a CA is being replaced, the
// others in ca.crt.
func clusterCAs(env *step.Env) ([]*x509.Certificate, error) {
	conf, err := thisnode.ReadKubeletFile(env.Host, env.Config.Paths.KubeletKubeconfig())
	if err != nil {
		return nil, err
	}
	if env.Config.Join == nil || env.Config.Join.CAPath == "" {
		return conf.Trusted, nil
	}
	kept, err := host.ReadIfExists(env.Host, env.Config.Join.CAPath)
	if err != nil || kept == nil {
		return conf.Trusted, err
	}
	list, err := certs.ParseCerts(kept)
	return append(list, conf.Trusted...), errors.Wrap(err, env.Config.Join.CAPath)
}

func awaitReport(ctx context.Context, env *step.Env, began time.Time) error {
	n, name := env.Config, thisnode.RegisteredName(env.Host, env.Config)
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil {
		return err
	}
	if settings.RegisterNode != nil && !*settings.RegisterNode {
		env.UI.Warn("the kubelet does not register its Node (registerNode: false), so nothing shows whether it reports to the cluster", "create Node "+name+" if it does not exist yet")
		return nil
	}
	failure := "node " + name + " has not reported to the cluster"
	env.UI.Printf("Waiting for node %s to report to the cluster, up to %s", name, n.Timeouts.TLSBootstrap)
	return env.Guard(ctx, &n.Timeouts.TLSBootstrap, env.KubeletTarget(), failure, func(ctx context.Context) error {
		if n.Join != nil && n.Join.NodeGone {
			if err := RestartUnregistered(ctx, env, "because its Node was deleted, and it registers one only when it starts"); err != nil {
				return err
			}
		}
		err := env.Cluster.AwaitReport(ctx, name, began)
		if err == nil {
			return nil
		}
		if unknown := unknownIssuer(env); unknown != nil {
			return fmt.Errorf("%w; %w", err, unknown)
		}
		return err
	})
}

// restartWhenReady makes a control plane's kubelet register its node as soon as this node's own API server can answer. The kubelet was
// refused while that server started, and its retry intervals have grown to many seconds. A failure only costs time.
func restartWhenReady(ctx context.Context, env *step.Env) {
	// The default rules exist already, so the hook that writes them doesn't matter.
	ready := host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz?exclude=poststarthook/rbac/bootstrap-roles"}
	probe := func(ctx context.Context) error { return env.Host.Probe(ctx, ready) }
	if retry.Every(node.ReadyInterval).Do(ctx, probe) != nil {
		return // the wait itself says why
	}
	restartNow(ctx, env, "so that it asks this node's API server at once")
}

// maxCertificateWait is how long a kubelet may wait for its certificate before it asks for its Node and everything else at
// intervals of seconds.
const maxCertificateWait = 1500 * time.Millisecond

// restartNow makes the kubelet register its node. Until it had its certificate, it was refused everything, and its intervals have
// grown up to half a minute, as in a cluster whose controller manager has just started. A failure only costs time.
func restartNow(ctx context.Context, env *step.Env, why string) {
	if err := RestartUnregistered(ctx, env, why); err != nil && ctx.Err() == nil {
		ui.WarnError(env.UI, errors.WithMessage(err, "the kubelet may take a long time to register this node"))
	}
}

// RestartUnregistered restarts the kubelet unless the cluster has its Node.
func RestartUnregistered(ctx context.Context, env *step.Env, why string) error {
	found, err := env.Cluster.Get(ctx, cluster.NewNode(thisnode.RegisteredName(env.Host, env.Config)))
	if err != nil || found {
		return err
	}
	env.UI.Printf("Restarting the kubelet, %s", why)
	return node.RestartKubelet(ctx, env)
}
