// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

func kubeletFinalize() Phase {
	flags := []string{"cert-dir", "config", "dry-run"}
	return Phase{
		Name:    "kubelet-finalize",
		Summary: "Change what the kubelet may only have once the cluster runs",
		Flags:   flags,
		Children: []Phase{{
			Name:    "enable-client-cert-rotation",
			Summary: "Let the kubelet use the client certificate that it rotates",
			Flags:   flags,
			Run:     runEnableClientCertRotation,
		}},
	}
}

// runEnableClientCertRotation points kubelet.conf at the certificate that the
// kubelet keeps fresh, instead of the embedded one that expires:
// https://kubernetes.io/docs/tasks/tls/certificate-rotation/
func runEnableClientCertRotation(ctx context.Context, env *Env) error {
	pem := kubeletClientPEM(env)
	path := kubeletConfPath(env.Config)
	settings, err := kubeletSettings(env)
	if err != nil {
		return err
	}
	if !settings.RotateCertificates {
		env.UI.Printf("Leaving %s as it is, for the kubelet's settings or flags switch the rotation of its certificate off (rotateCertificates)", path)
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
	shown, err := (&kubeletFile{path: path, data: data}).certificate(env.Host)
	if err != nil {
		return err
	}
	if !changed {
		if err := authenticates(pem, shown, nodeOf(shown), env.Host.Now()); err != nil {
			return errors.Errorf("%v, so that the kubelet cannot rotate it any more; `slipway certs renew all --restart` gives it a new one", err)
		}
		return restartStaleKubelet(ctx, env, path)
	}
	if err := awaitClientCertificate(ctx, env, pem, nodeOf(shown)); err != nil {
		return err
	}
	env.UI.Printf("Pointing %s at the client certificate that the kubelet rotates", path)
	if _, err := env.Host.WriteSecret(path, rotatable); err != nil {
		return err
	}
	return restartKubelet(ctx, env)
}

// restartKubelet takes systemd's time for no longer than that of a kubelet to
// get healthy. Without an init system it leaves the restart to the user.
func restartKubelet(ctx context.Context, env *Env) error {
	ctx, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	err := env.Host.RestartUnit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warnf("%v: restart the kubelet another way, now", err)
		return nil
	}
	return err
}

// restartStaleKubelet restarts a kubelet that has not read the file at path as
// it is now: an earlier run was cut off between writing and restarting.
func restartStaleKubelet(ctx context.Context, env *Env, path string) error {
	stale, err := kubeletIsStale(ctx, env, path)
	if err != nil || !stale {
		return err
	}
	env.UI.Printf("Restarting the kubelet, which runs since before %s was changed", path)
	return restartKubelet(ctx, env)
}

func kubeletIsStale(ctx context.Context, env *Env, path string) (bool, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return false, err
	}
	unit, err := env.Host.Unit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warnf("whether the kubelet has read %s since that was changed is not known, as %v", path, err)
		return false, nil
	}
	return err == nil && !unit.ActiveSince.IsZero() && unit.ActiveSince.Before(info.ModTime()), err
}

// awaitClientCertificate waits for the file that the kubelet writes soon after
// its start. One that was there before may have expired.
func awaitClientCertificate(ctx context.Context, env *Env, pem, node string) error {
	limit := env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's client certificate, up to %s", limit)
	const failure = "the kubelet has no client certificate that is valid; `journalctl -u kubelet` tells why"
	return watched(ctx, env, limit, kubeletTarget(env.Config), failure, func(ctx context.Context) error {
		return errors.WithMessage(env.Host.AwaitFile(ctx, pem, validClientCertificate(env, pem, node)), failure)
	})
}
