// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

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
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WithSigner is the controller manager with a manifest by which it signs with a file of its own if ca.crt holds several CAs. The
// kubelet restarts it when that is written. A manifest with another file, which somebody has chosen, stays.
func WithSigner(env *step.Env) (ComponentUpgrade, error) {
	c := ComponentUpgrade{Name: manifests.ControllerManagerName}
	have, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, c.Name))
	if err != nil {
		return c, err
	}
	c.Before = have
	c.Wanted, err = env.PKI().WithSigner(have)
	return c, err
}

// RestartAll restarts all components that are stale, but for etcd if it has to stay, and waits for all.
func (t Turn) RestartAll(ctx context.Context, env *step.Env, etcdStays bool) error {
	first, then := []string{}, []string{}
	for _, name := range StaticPods(env) {
		switch {
		case name == manifests.EtcdName && etcdStays:
		case name == manifests.EtcdName, name == manifests.APIServerName:
			first = append(first, name)
		default:
			then = append(then, name)
		}
	}
	if err := t.RestartStale(ctx, env, first...); err != nil {
		return err
	}
	return t.RestartStale(ctx, env, then...)
}

// StaticPods are the components that this host has, etcd first. If the cluster's configuration is not known, etcd may be
// external.
func StaticPods(env *step.Env) []string {
	return slices.DeleteFunc(manifests.Components(env.Config), func(name string) bool {
		_, err := env.Host.Lstat(thisnode.StaticPodPath(env.Config, name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// RestartStale restarts those of the components that are stale, and waits for
// all of them.
func (t Turn) RestartStale(ctx context.Context, env *step.Env, components ...string) error {
	since := map[string]time.Time{} // when a component's container must have been created
	for _, name := range components {
		var err error
		if since[name], err = CredentialsChanged(env, name); err != nil {
			return err
		}
	}
	stale, err := StaleComponents(ctx, env, components...)
	if err != nil {
		return err
	}
	began := env.Host.Now()
	for _, c := range stale {
		env.UI.Printf("Restarting %s", c.Name)
	}
	if stale, err = t.stop(ctx, env, stale, thisKubelet); err != nil {
		return err
	}
	for _, c := range stale {
		if began.After(since[c.Name]) {
			since[c.Name] = began
		}
	}
	for _, name := range components {
		if !Contains(stale, name) { // it may have crashed with its old certificate; if this fails, the restart only takes longer
			_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
		}
	}
	return awaitAllRestarted(ctx, env, since)
}

// awaitAllRestarted waits until each component is healthy, in a container that was created after a time.
func awaitAllRestarted(ctx context.Context, env *step.Env, since map[string]time.Time) error {
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	names := slices.Sorted(maps.Keys(since))
	failure := strings.Join(names, " and ") + " did not become healthy after the restart"
	return diagnose.Guard(ctx, env.Host, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error {
				if err := awaitRestarted(ctx, env, name, since[name]); err != nil {
					return err
				}
				return WaitComponent(ctx, env, name)
			})
		}
		return group.Wait()
	})
}

// StaleComponents are those of the components that run with containers from before their files changed. Their manifests
// stay, except for that of a controller manager that would not start with several CAs.
func StaleComponents(ctx context.Context, env *step.Env, names ...string) (list []ComponentUpgrade, err error) {
	for _, name := range names {
		c := ComponentUpgrade{Name: name}
		if name == manifests.ControllerManagerName {
			c, err = WithSigner(env)
		} else {
			c.Before, err = host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, name))
			c.Wanted = c.Before
		}
		if err == nil {
			c.Stale, err = StaleContainers(ctx, env, name)
		}
		if err != nil {
			return nil, err
		}
		if c.Before != nil && (len(c.Stale) > 0 || !bytes.Equal(c.Before, c.Wanted)) {
			list = append(list, c)
		}
	}
	return list, nil
}

// StaleContainers are those of a component that were created before its files
// changed.
func StaleContainers(ctx context.Context, env *step.Env, component string) ([]host.Container, error) {
	changed, err := CredentialsChanged(env, component)
	if err != nil {
		return nil, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(changed) }), err
}

// awaitRestarted waits for a container that was created after the component's
// files changed.
func awaitRestarted(ctx context.Context, env *step.Env, component string, changed time.Time) error {
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component,
		func(c host.Container) bool { return !c.Created.Before(changed) })
	return errors.Wrapf(err, "the kubelet has not restarted %s; see `journalctl -u kubelet` and /var/log/pods", component)
}

// CredentialsChanged is when the newest of the component's files was written.
func CredentialsChanged(env *step.Env, component string) (time.Time, error) {
	var newest time.Time
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy != component {
			continue
		}
		info, err := env.Host.Lstat(env.PKI().Files(row)[0])
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
