// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// restartPhases put the renewed certificates to use. A kubelet whose certificate
// has expired comes first, because the kubelet restarts the components.
func restartPhases() []Phase {
	return []Phase{
		checkTrust(),
		{Name: "kubelet", Summary: "Renew an expired kubelet.conf", Run: repairKubelet},
		{Name: "restart", Summary: "Restart the components whose files have changed", Run: restartChanged},
		{Name: "kubelet-finalize", Summary: "Let the kubelet rotate its certificate", Run: finishKubelet},
		{Name: "etcd", Summary: "Restart etcd if it had to wait for other members", Run: restartEtcdLate, Skip: unlessLocalEtcd},
	}
}

// restartChanged compares the times of files and containers, so that the same
// command finishes a run that was interrupted. If nothing is to be restarted, it
// only waits for all to be healthy.
//
// The API server stops before etcd. Each waits for the other when it stops: the
// API server gives up its lease in etcd, and etcd waits seven seconds for the
// API server's watches to end. Then both start together, and the API is away as
// briefly as can be. What can do nothing without it is restarted after it.
func restartChanged(ctx context.Context, env *Env) error {
	if err := endBackOff(ctx, env); err != nil {
		return err
	}
	if err := env.pki().EnsureSigner(); err != nil {
		return err
	}
	stale, err := staleComponents(ctx, env, staticPods(env)...)
	if err != nil {
		return err
	}
	if len(stale) == 0 {
		if err := (turn{}).restartAll(ctx, env, false); err != nil {
			return err
		}
		return finishEarlier(ctx, env, forRenewal)
	}
	mine, err := takeTurnToRenew(ctx, env)
	if err != nil {
		return err
	}
	etcdStays := false
	if includes(stale, manifests.EtcdName) {
		var kept *quorumError
		if err := spareEtcd(ctx, env, stale); errors.As(err, &kept) { // the others do not depend on it
			ui.WarnError(env.UI, err)
			etcdStays = true
		} else if err != nil {
			return mine.unused(ctx, err)
		}
	}
	return mine.finish(ctx, env, mine.restartAll(ctx, env, etcdStays))
}

// takeTurnToRenew is takeTurnIfAnswered. An API server that is not healthy is of no use to anybody, so it is restarted first if
// it keeps this run from the Lease. Where no other member of etcd works, nobody needs the Lease. Where the API server is healthy
// and there is no valid admin.conf, the health of etcd's members alone decides.
func takeTurnToRenew(ctx context.Context, env *Env) (turn, error) {
	mine, err := takeTurnIfAnswered(ctx, env, forRenewal)
	if err != nil || mine.held || !mayHavePeers(ctx, env) || isHealthy(ctx, env, manifests.APIServerName) {
		return mine, err
	}
	if err := mine.restartStale(ctx, env, manifests.APIServerName); err != nil {
		return turn{}, err
	}
	return takeTurnIfAnswered(ctx, env, forRenewal)
}

// restartAll restarts all components that are stale, but for etcd if it has to stay, and waits for all.
func (t turn) restartAll(ctx context.Context, env *Env, etcdStays bool) error {
	first, then := []string{}, []string{}
	for _, name := range staticPods(env) {
		switch {
		case name == manifests.EtcdName && etcdStays:
		case name == manifests.EtcdName, name == manifests.APIServerName:
			first = append(first, name)
		default:
			then = append(then, name)
		}
	}
	if err := t.restartStale(ctx, env, first...); err != nil {
		return err
	}
	return t.restartStale(ctx, env, then...)
}

// staticPods are the components that this host has, etcd first. If the cluster's configuration is not known, etcd may be
// external.
func staticPods(env *Env) []string {
	return slices.DeleteFunc(manifests.Components(env.Config), func(name string) bool {
		_, err := env.Host.Lstat(thisnode.StaticPodPath(env.Config, name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// endBackOff restarts a kubelet that delays the start of a component which
// crashed, as one does with an expired certificate: by up to five minutes
// (CrashLoopBackOff). Only a restart makes the kubelet forget that.
func endBackOff(ctx context.Context, env *Env) error {
	kubelet, err := env.Host.Unit(ctx, kubeletUnit)
	switch {
	case errors.Is(err, host.ErrNoSystemd):
		return nil
	case err != nil || kubelet.ActiveSince.IsZero():
		return err
	}
	var crashed []string
	for _, component := range staticPods(env) {
		running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
		if err != nil {
			return err
		}
		changed, err := credentialsChanged(env, component)
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
	if err := restartKubelet(ctx, env); err != nil {
		return err
	}
	return waitKubelet(ctx, env)
}

// restartStale restarts those of the components that are stale, and waits for
// all of them.
func (t turn) restartStale(ctx context.Context, env *Env, components ...string) error {
	since := map[string]time.Time{} // when a component's container must have been created
	for _, name := range components {
		var err error
		if since[name], err = credentialsChanged(env, name); err != nil {
			return err
		}
	}
	stale, err := staleComponents(ctx, env, components...)
	if err != nil {
		return err
	}
	began := env.Host.Now()
	for _, c := range stale {
		env.UI.Printf("Restarting %s", c.name)
	}
	if stale, err = t.stop(ctx, env, stale, thisKubelet); err != nil {
		return err
	}
	for _, c := range stale {
		if began.After(since[c.name]) {
			since[c.name] = began
		}
	}
	for _, name := range components {
		if !includes(stale, name) { // it may have crashed with its old certificate; if this fails, the restart only takes longer
			_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
		}
	}
	return awaitAllRestarted(ctx, env, since)
}

// awaitAllRestarted waits until each component is healthy, in a container that was created after a time.
func awaitAllRestarted(ctx context.Context, env *Env, since map[string]time.Time) error {
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	names := slices.Sorted(maps.Keys(since))
	failure := strings.Join(names, " and ") + " did not become healthy after the restart"
	return diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error {
				if err := awaitRestarted(ctx, env, name, since[name]); err != nil {
					return err
				}
				return waitComponent(ctx, env, name)
			})
		}
		return group.Wait()
	})
}

// staleComponents are those of the components that run with containers from before their files changed. Their manifests
// stay, except for that of a controller manager that would not start with several CAs.
func staleComponents(ctx context.Context, env *Env, names ...string) (list []componentUpgrade, err error) {
	for _, name := range names {
		c := componentUpgrade{name: name}
		if name == manifests.ControllerManagerName {
			c, err = withSigner(env)
		} else {
			c.before, err = host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, name))
			c.wanted = c.before
		}
		if err == nil {
			c.stale, err = staleContainers(ctx, env, name)
		}
		if err != nil {
			return nil, err
		}
		if c.before != nil && (len(c.stale) > 0 || !bytes.Equal(c.before, c.wanted)) {
			list = append(list, c)
		}
	}
	return list, nil
}

// staleContainers are those of a component that were created before its files
// changed.
func staleContainers(ctx context.Context, env *Env, component string) ([]host.Container, error) {
	changed, err := credentialsChanged(env, component)
	if err != nil {
		return nil, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(changed) }), err
}

// awaitRestarted waits for a container that was created after the component's
// files changed.
func awaitRestarted(ctx context.Context, env *Env, component string, changed time.Time) error {
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component,
		func(c host.Container) bool { return !c.Created.Before(changed) })
	return errors.Wrapf(err, "the kubelet has not restarted %s; see `journalctl -u kubelet` and /var/log/pods", component)
}

// credentialsChanged is when the newest of the component's files was written.
func credentialsChanged(env *Env, component string) (time.Time, error) {
	var newest time.Time
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy != component {
			continue
		}
		info, err := env.Host.Lstat(env.pki().Files(row)[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return newest, err
		case info.ModTime().After(newest):
			newest = info.ModTime()
		}
	}
	return newest, nil
}
