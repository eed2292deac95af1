// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restartPhases put the renewed certificates to use. A kubelet's expired certificate comes first: the kubelet restarts the rest.
func restartPhases() []step.Phase {
	return []step.Phase{
		{Name: "trust", Summary: "Check that clients and servers trust each other", Run: checkTrust},
		{Name: "kubelet", Summary: "Renew an expired kubelet.conf", Run: repairKubelet},
		{Name: "restart", Summary: "Restart the components whose files have changed", Run: restartChanged},
		{Name: "kubelet-finalize", Summary: "Let the kubelet rotate its certificate", Run: finishKubelet},
		{Name: "etcd", Summary: "Restart etcd if it had to wait for other members", Run: restartEtcdLate, Skip: node.UnlessLocalEtcd},
	}
}

// restartChanged compares the times of files and containers, so the same command finishes an interrupted run. If nothing needs a
// restart, it only waits for all to be healthy.
//
// The API server stops before etcd. Each waits for the other when it stops: the API server gives up its lease in etcd, and etcd
// waits seven seconds for the API server's watches to end. Then both start together, which keeps the outage short. Components
// that need the API are restarted after it.
func restartChanged(ctx context.Context, env *step.Env) error {
	if err := resetRestartBackOff(ctx, env); err != nil {
		return err
	}
	if err := env.PKI().EnsureSigner(); err != nil {
		return err
	}
	stale, err := node.StaleComponents(ctx, env, node.StaticPods(env)...)
	if err != nil {
		return err
	}
	if len(stale) == 0 {
		if err := restartAll(ctx, env, node.Lease{}, false); err != nil {
			return err
		}
		return node.ReleaseInterruptedLease(ctx, env, node.ForRenewal)
	}
	mine, err := acquireLeaseForRenewal(ctx, env)
	if err != nil {
		return err
	}
	etcdStays := false
	if node.HasComponent(stale, manifests.EtcdName) {
		var kept *node.QuorumError
		if err := node.CheckEtcdCanStop(ctx, env, stale); errors.As(err, &kept) { // the others don't depend on it
			ui.WarnError(env.UI, err)
			etcdStays = true
		} else if err != nil {
			return mine.Cancel(ctx, err)
		}
	}
	err = restartAll(ctx, env, mine, etcdStays)
	return mine.Release(ctx, env, err)
}

// restartAll restarts all stale components, except etcd if it has to stay, and waits for them.
func restartAll(ctx context.Context, env *step.Env, turn node.Lease, etcdStays bool) error {
	names := slices.DeleteFunc(node.StaticPods(env), func(name string) bool { return name == manifests.EtcdName && etcdStays })
	api := 0
	for api < len(names) && (names[api] == manifests.EtcdName || names[api] == manifests.APIServerName) {
		api++
	}
	if err := node.RestartStale(ctx, env, turn, names[:api]...); err != nil {
		return err
	}
	return node.RestartStale(ctx, env, turn, names[api:]...)
}

// acquireLeaseForRenewal is AcquireLeaseIfReachable, but an unhealthy API server that keeps this run from the Lease is restarted
// first: it's no use to anybody. If no other etcd member works, nobody needs the Lease. If the API server is healthy and there's
// no valid admin.conf, the health of etcd's members alone decides.
func acquireLeaseForRenewal(ctx context.Context, env *step.Env) (node.Lease, error) {
	mine, err := node.AcquireLeaseIfReachable(ctx, env, node.ForRenewal)
	if err != nil || mine.Held || !node.MayHavePeers(ctx, env) || node.IsHealthy(ctx, env, manifests.APIServerName) {
		return mine, err
	}
	if err := node.RestartStale(ctx, env, mine, manifests.APIServerName); err != nil {
		return node.Lease{}, err
	}
	return node.AcquireLeaseIfReachable(ctx, env, node.ForRenewal)
}

// resetRestartBackOff restarts a kubelet that delays a crashed component's start by up to five minutes (CrashLoopBackOff).
// Components crash when their certificates expire. Only a restart makes the kubelet forget.
func resetRestartBackOff(ctx context.Context, env *step.Env) error {
	kubelet, err := env.Host.Unit(ctx, node.KubeletUnit)
	switch {
	case errors.Is(err, host.ErrNoSystemd):
		return nil
	case err != nil || kubelet.ActiveSince.IsZero():
		return err
	}
	var crashed []string
	for _, component := range node.StaticPods(env) {
		running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
		if err != nil {
			return err
		}
		changed, err := node.CredentialsChanged(env, component)
		if err != nil {
			return err
		}
		if len(running) == 0 && kubelet.ActiveSince.Before(changed) {
			crashed = append(crashed, component)
		}
	}
	if len(crashed) == 0 {
		return nil
	}
	env.UI.Printf("Restarting the kubelet, so that it starts %s without delay", strings.Join(crashed, ", "))
	return node.RestartKubeletAndWait(ctx, env)
}

// checkTrust runs before anything restarts: components that refuse each other's certificates would take the control plane down.
func checkTrust(_ context.Context, env *step.Env) error {
	return pki.Renewal{Store: env.PKI()}.CheckTrustNow()
}

// restartEtcdLate restarts an etcd that restartChanged had to leave running, or says why it still uses its old certificates.
func restartEtcdLate(ctx context.Context, env *step.Env) error {
	stale, err := node.StaleContainers(ctx, env, manifests.EtcdName)
	if err != nil || len(stale) == 0 {
		return err
	}
	if err := node.AwaitPeers(ctx, env); err != nil {
		return fault.WithRemedy(errors.WithMessage(err, "everything else is done, but etcd was not restarted"),
			node.QuorumRemedy+", then run `slipway certs renew etcd-server --restart`")
	}
	mine, err := acquireLeaseForRenewal(ctx, env)
	if err != nil {
		return err
	}
	err = node.RestartStale(ctx, env, mine, manifests.EtcdName)
	return mine.Release(ctx, env, err)
}
