// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

func kubeletFinalize() Phase {
	flags := []string{"cert-dir", "config", "dry-run"}
	return Phase{
		Name:    "kubelet-finalize",
		Summary: "Update the kubelet's settings once the cluster is running",
		Flags:   flags,
		Children: []Phase{{
			Name:    "enable-client-cert-rotation",
			Summary: "Let the kubelet use the client certificate that it rotates",
			Flags:   flags,
			Run:     runEnableClientCertRotation,
		}},
	}
}

// runEnableClientCertRotation points kubelet.conf at the certificate that the kubelet rotates, instead of the
// embedded one, which expires: https://kubernetes.io/docs/tasks/tls/certificate-rotation/
func runEnableClientCertRotation(ctx context.Context, env *Env) error {
	pem := thisnode.KubeletClientPEM(env.Host, env.Config)
	path := thisnode.KubeletConf(env.Config)
	settings, err := thisnode.KubeletSettings(env.Host, env.Config)
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
		return restartStaleKubelet(ctx, env, path)
	}
	if err := awaitClientCertificate(ctx, env, pem, thisnode.NameIn(shown)); err != nil {
		return err
	}
	env.UI.Printf("Pointing %s at the client certificate that the kubelet rotates", path)
	if _, err := env.Host.WriteSecret(path, rotatable); err != nil {
		return err
	}
	return restartKubelet(ctx, env)
}

// restartKubelet gives systemd as much time as the kubelet has to become healthy. Without an init system it leaves
// the restart to the user.
func restartKubelet(ctx context.Context, env *Env) error {
	ctx, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	err := env.Host.RestartUnit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(err.Error()+": the kubelet is not restarted", "restart it some other way now")
		return nil
	}
	return err
}

// restartStaleKubelet restarts a kubelet that started before the file at path was changed: an earlier run was
// interrupted between the write and the restart.
func restartStaleKubelet(ctx context.Context, env *Env, path string) error {
	stale, err := kubeletIsStale(ctx, env, path)
	if err != nil || !stale {
		return err
	}
	env.UI.Printf("Restarting the kubelet, which started before %s was changed", path)
	return restartKubelet(ctx, env)
}

func kubeletIsStale(ctx context.Context, env *Env, path string) (bool, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return false, err
	}
	unit, err := env.Host.Unit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(errors.Wrapf(err, "cannot tell whether the kubelet has read %s since it was changed", path).Error(),
			"restart it some other way if it started before that")
		return false, nil
	}
	return err == nil && !unit.ActiveSince.IsZero() && unit.ActiveSince.Before(info.ModTime()), err
}

// awaitClientCertificate waits for the file that the kubelet writes soon after it has started. An older one may have
// expired.
func awaitClientCertificate(ctx context.Context, env *Env, pem, name string) error {
	limit := env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's client certificate, up to %s", limit)
	const failure = "the kubelet has no valid client certificate; `journalctl -u kubelet` shows why"
	return diagnose.Guard(ctx, env.Host, limit, env.kubeletTarget(), failure, func(ctx context.Context) error {
		return errors.WithMessage(env.Host.AwaitFile(ctx, pem, thisnode.ClientCertificateCheck(env.Host, pem, name)), failure)
	})
}
