// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// forgetOtherName removes a certificate that the kubelet got under another name in an unfinished init: the kubelet would prefer
// it to the new certificate in kubelet.conf.
func forgetOtherName(ctx context.Context, env *step.Env) error {
	if !env.Again || !env.Unfinished {
		return nil
	}
	pem := thisnode.KubeletClientPEM(env.Host, env.Config)
	data, err := host.ReadIfExists(env.Host, pem)
	if err != nil || data == nil {
		return err
	}
	var expired *thisnode.ExpiredError
	err = thisnode.ClientCertificateCheck(env.Host, pem, env.Config.Name)(data)
	if err == nil || errors.As(err, &expired) {
		return nil
	}
	env.UI.Printf("Removing the kubelet's certificate from an earlier run: %v", err)
	if err := env.Host.StopUnit(ctx, node.KubeletUnit); err != nil && !errors.Is(err, host.ErrNoSystemd) {
		return err
	}
	return env.Host.Remove(pem)
}

// restartForConf restarts a kubelet running with an unfinished init's kubelet.conf.
func restartForConf(ctx context.Context, env *step.Env) error {
	if !env.Again || !env.Unfinished {
		return nil
	}
	return node.RestartStaleKubelet(ctx, env, thisnode.KubeletConf(env.Config))
}
