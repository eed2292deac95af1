// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Finalize is the phase kubelet-finalize of init.
func Finalize() step.Phase {
	flags := []string{"cert-dir", "config", "dry-run"}
	return step.Phase{
		Name:    "kubelet-finalize",
		Summary: "Update the kubelet's settings once the cluster is running",
		Flags:   flags,
		Children: []step.Phase{{
			Name:    "enable-client-cert-rotation",
			Summary: "Let the kubelet use the client certificate that it rotates",
			Flags:   flags,
			Run:     EnableClientCertRotation,
		}, ServingCertificate().Needing("kubelet-finalize/enable-client-cert-rotation")}, // which restarts the kubelet, and so ends its first request
	}
}

// EnableClientCertRotation points kubelet.conf at the rotated certificate instead of the embedded certificate, which expires:
// https://kubernetes.io/docs/tasks/tls/certificate-rotation/
func EnableClientCertRotation(ctx context.Context, env *step.Env) error {
	pem := thisnode.KubeletClientPEM(env.Host, env.Settings())
	path := env.Config.Paths.KubeletKubeconfig()
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil {
		return err
	}
	if !settings.RotateCertificates {
		env.UI.Printf("Leaving %s as it is, because the kubelet's settings or flags turn certificate rotation off (rotateCertificates)", path)
		return nil
	}
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return err
	}
	rotatable, changed, err := kubeconfig.RotatableKubelet(data, pem)
	if err != nil {
		return errors.Wrap(err, path)
	}
	shown, err := (&thisnode.KubeletFile{Path: path, Data: data}).Certificate(env.Host)
	if err != nil {
		return err
	}
	if !changed {
		if err := thisnode.CheckCertificate(pem, shown, thisnode.NameIn(shown), env.Host.Now()); err != nil {
			return fault.New(err.Error()+", so the kubelet can no longer rotate it", "run `slipway certs renew all --restart`, which gives it a new one")
		}
		return node.RestartStaleKubelet(ctx, env, path)
	}
	if err := awaitClientCertificate(ctx, env, pem, thisnode.NameIn(shown)); err != nil {
		return err
	}
	if err := env.Host.SyncFiles(pem); err != nil {
		return err
	}
	env.UI.Printf("Pointing %s at the client certificate that the kubelet rotates", path)
	if _, err := env.Host.WriteSecret(path, rotatable); err != nil {
		return err
	}
	return node.RestartKubelet(ctx, env)
}

// awaitClientCertificate waits for the file that the kubelet writes soon after its start. An older file may have expired, or be of
// an earlier cluster.
func awaitClientCertificate(ctx context.Context, env *step.Env, pem, name string) error {
	limit := &env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's client certificate, up to %s", *limit)
	const failure = "the kubelet has no valid client certificate; `journalctl -u kubelet` shows why"
	return env.Guard(ctx, limit, env.KubeletTarget(), failure, func(ctx context.Context) error {
		return errors.WithMessage(env.Host.AwaitFile(ctx, pem, func(data []byte) error {
			if err := thisnode.ClientCertificateCheck(env.Host, pem, name)(data); err != nil {
				return err
			}
			known, err := clientCAs(env)
			if err != nil {
				return err
			}
			return checkIssuer(env, pem, data, known)
		}), failure)
	})
}
