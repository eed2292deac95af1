// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// podKeeper is the keeper of a component's static Pod. An etcd that has joined may be a voter that the others need, so its
// static Pod stays.
func podKeeper(env *Env, component string) ownership.Keeper {
	k := env.keeper()
	if component == manifests.EtcdName && env.Config.Join != nil {
		k.Unfinished = k.Unfinished && !thisnode.WasMember(env.Host, env.Config)
	}
	return k
}

// replaceUnfinished writes the static Pod of a component that an earlier run may have started, and makes the component run with
// it, and with files that have been issued again. The kubelet by itself would take 15 to 25 seconds for it (runWith).
func replaceUnfinished(ctx context.Context, env *Env, component string, pending []ownership.File) error {
	_, missing := env.Host.Lstat(thisnode.StaticPodPath(env.Config, component))
	differing, err := ownership.Differing(env.Host, pending)
	if err != nil {
		return err
	}
	stale, unknown := staleContainers(ctx, env, component)
	if missing != nil || len(differing) == 0 && (unknown != nil || len(stale) == 0) {
		return env.keeper().Replace(pending)
	}
	grace := graceOf(env, component) // by the static Pod that it runs with
	if component == manifests.EtcdName {
		if err := spareLocalEtcd(ctx, env); err != nil {
			return err
		}
		stopEarly(ctx, env, manifests.APIServerName, graceOf(env, manifests.APIServerName)) // each waits for the other
	}
	if err := env.keeper().Replace(pending); err != nil {
		return err
	}
	stopEarly(ctx, env, component, grace)
	if component != manifests.EtcdName && component != manifests.APIServerName {
		return nil // nothing waits for it
	}
	return restartKubelet(ctx, env)
}

// stopEarly stops a component. If that fails, the kubelet does it, later.
func stopEarly(ctx context.Context, env *Env, component string, grace time.Duration) {
	if err := stopContainers(ctx, env, component, grace); err != nil && ctx.Err() == nil {
		env.UI.Printf("%s takes longer to restart: %v", component, err)
	}
}

// forgetOtherName removes the certificate that the kubelet has got under another name, in an earlier init that came to no end: it
// would use that instead of the new one in kubelet.conf.
func forgetOtherName(ctx context.Context, env *Env) error {
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
	env.UI.Printf("Removing what the kubelet got in an earlier run: %v", err)
	if err := env.Host.StopUnit(ctx, kubeletUnit); err != nil && !errors.Is(err, host.ErrNoSystemd) {
		return err
	}
	return env.Host.Remove(pem)
}

// restartForConf restarts a kubelet that runs with the kubelet.conf of an earlier init, which came to no end.
func restartForConf(ctx context.Context, env *Env) error {
	if !env.Again || !env.Unfinished {
		return nil
	}
	return restartStaleKubelet(ctx, env, thisnode.KubeletConf(env.Config))
}
