// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EnableClientCertRotation points kubelet.conf at the rotated certificate instead of the embedded one, which expires:
// https://kubernetes.io/docs/tasks/tls/certificate-rotation/
func EnableClientCertRotation(ctx context.Context, env *step.Env) error {
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
		return RestartStaleKubelet(ctx, env, path)
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
	return RestartKubelet(ctx, env)
}

// RestartKubelet gives systemd as long as the kubelet has to become healthy. Without an init system, the user has to restart it.
func RestartKubelet(ctx context.Context, env *step.Env) error {
	ctx, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	err := env.Host.OrderUnit(ctx, host.RestartUnit, KubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(err.Error()+": the kubelet is not restarted", "restart it some other way now")
		return nil
	}
	return err
}

// RestartStaleKubelet restarts a kubelet that's older than the file at path: a run was interrupted between write and restart.
func RestartStaleKubelet(ctx context.Context, env *step.Env, path string) error {
	stale, err := KubeletIsStale(ctx, env, path)
	if err != nil || !stale {
		return err
	}
	env.UI.Printf("Restarting the kubelet, which started before %s was changed", path)
	return RestartKubelet(ctx, env)
}

func KubeletIsStale(ctx context.Context, env *step.Env, path string) (bool, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return false, err
	}
	unit, err := env.Host.Unit(ctx, KubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		env.UI.Warn(errors.Wrapf(err, "cannot tell whether the kubelet has read %s since it was changed", path).Error(),
			"restart it some other way if it started before that")
		return false, nil
	}
	return err == nil && !unit.ActiveSince.IsZero() && unit.ActiveSince.Before(info.ModTime()), err
}

// awaitClientCertificate waits for the file that the kubelet writes soon after its start. An older file may have expired.
func awaitClientCertificate(ctx context.Context, env *step.Env, pem, name string) error {
	limit := env.Config.Timeouts.TLSBootstrap
	env.UI.Printf("Waiting for the kubelet's client certificate, up to %s", limit)
	const failure = "the kubelet has no valid client certificate; `journalctl -u kubelet` shows why"
	return diagnose.Guard(ctx, env.Host, limit, env.KubeletTarget(), failure, func(ctx context.Context) error {
		return errors.WithMessage(env.Host.AwaitFile(ctx, pem, thisnode.ClientCertificateCheck(env.Host, pem, name)), failure)
	})
}

// KubeletUnit is the kubelet's unit in the distributions' packages.
const KubeletUnit = "kubelet.service"

// StartAgain starts the kubelet of a working node whose new files couldn't be written, for example on a full disk: each file is
// either old or new, and without a kubelet the node would lose its Pods. It returns cause.
func StartAgain(ctx context.Context, env *step.Env, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(ctx, host.StartUnit, KubeletUnit); err != nil {
		return errors.WithMessagef(cause, "the kubelet is stopped and could not be started again (%v): fix the problem, then run `systemctl start kubelet`", err)
	}
	env.UI.Warnf("not all of the kubelet's files could be written; the kubelet is running again")
	return cause
}

// ExplainedJob explains why systemd can't do a job, if the kubelet's unit is at fault. Other errors explain themselves.
func ExplainedJob(ctx context.Context, env *step.Env, err error) error {
	if err == nil {
		return nil
	}
	unit, unknown := env.Host.Unit(ctx, KubeletUnit)
	if unknown != nil || unit.LoadState == "loaded" && unit.UnitFileState != "masked" {
		return err
	}
	return diagnose.Explain(ctx, env.Host, env.Host.Now(), env.KubeletTarget(), err)
}

// EnsureUnitIsCurrent makes systemd reload the kubelet's unit if it has changed on disk: reloading takes a tenth of a second.
func EnsureUnitIsCurrent(ctx context.Context, env *step.Env) error {
	if unit, err := env.Host.Unit(ctx, KubeletUnit); err == nil && unit.Current {
		return nil
	}
	return env.Host.ReloadUnits(ctx)
}
